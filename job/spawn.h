// Starting one process, as fast as the kernel can: vfork and exec.
#pragma once

#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <string>
#include <vector>

namespace hvd::job {

/// What horovodrun changed for itself, and its children shall not see.
struct ProcessDefaults {
  sigset_t signal_mask{};
  struct sigaction on_broken_pipe {};
  rlimit open_files{};
};

/// Descriptors of the parent; 0, 1, 2 and `key_target` of the child.
struct Program {
  std::string path;
  std::vector<std::string> arguments;
  std::vector<std::string> environment;
  int in = -1;
  int out = -1;
  int err = -1;
  int key = -1;
  int key_target = -1;
};

struct Spawned {
  pid_t pid = -1;
  int error = 0;  ///< errno of what failed; 0: the program runs
};

/// The child leads a process group of its own and dies with the calling process.
Spawned spawn(const Program& program, const ProcessDefaults& defaults);

/// Where the shell would find `name`: itself when it holds a slash, else in the folders of `path`.
/// Empty: nowhere.
std::string find_program(const std::string& name, const std::string& path);

}  // namespace hvd::job
