// Starting processes, as fast as the kernel can: no memory is copied, and the next one is started
// while the one before is still becoming its program.
#pragma once

#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace hvd::job {

/// What horovodrun changed for itself, and its children shall not see.
struct ProcessDefaults {
  sigset_t signal_mask{};
  struct sigaction on_broken_pipe {};
  rlimit open_files{};
};

/// Descriptors of the parent; 0, 1, 2 and, where there is a `key`, `key_target` of the child.
struct Program {
  std::string path;
  std::vector<std::string> arguments;
  std::vector<std::string> environment;
  int in = -1;
  int out = -1;
  int err = -1;
  int key = -1;
  int key_target = -1;
  std::vector<int> cpus{};  ///< that it may use; none: those of the parent
};

/// An array that ends with null, as exec wants it. `texts` outlives it.
std::vector<char*> pointers(const std::vector<std::string>& texts);

/// A child, and the memory in which it runs until it has become the program: keep it until the
/// child has ended.
class Spawned {
 public:
  /// The child leads a process group of its own and dies with the calling thread. Both arguments
  /// must outlive this. Throws Error{internal} when no process can be made.
  Spawned(const Program& program, const ProcessDefaults& defaults);
  Spawned(const Spawned&) = delete;
  Spawned& operator=(const Spawned&) = delete;

  pid_t pid() const { return pid_; }
  /// Once it has ended: why it never became the program (errno), or 0.
  int error() const { return error_; }

 private:
  static int child(void* spawned);

  const Program& program_;
  const ProcessDefaults& defaults_;
  std::vector<char*> arguments_;
  std::vector<char*> environment_;
  std::vector<cpu_set_t> cpus_;
  std::unique_ptr<std::byte[]> stack_;
  pid_t pid_ = -1;
  volatile int error_ = 0;  ///< written by the child
};

/// Where the shell would find `name`: itself when it holds a slash, else in the folders of `path`.
/// Empty: nowhere.
std::string find_program(const std::string& name, const std::string& path);

}  // namespace hvd::job
