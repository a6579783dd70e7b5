// Starting processes, as fast as the kernel can: no memory is copied, and the next one is started
// while the one before is still on its way to exec. Until then a child runs in the memory of its
// parent, so it makes raw system calls only and the parent keeps that memory alive.
#pragma once

#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <atomic>
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

/// Those of this process as they are now.
ProcessDefaults current_defaults();

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

/// A child process, and the memory that it uses until exec. Owned and used by one thread.
class Spawned {
 public:
  /// The child leads a process group of its own and dies with the calling thread. Both arguments
  /// must outlive this. Where no process can be made, pid() is -1 and error() says why.
  Spawned(const Program& program, const ProcessDefaults& defaults);
  Spawned(Program&&, const ProcessDefaults&) = delete;  // nor temporaries
  Spawned(const Program&, ProcessDefaults&&) = delete;
  Spawned(const Spawned&) = delete;
  Spawned& operator=(const Spawned&) = delete;
  /// A child that has not reached exec is killed; returns once it has left our memory. Does not
  /// reap it.
  ~Spawned();

  pid_t pid() const { return pid_; }
  /// Why it never became the program (errno), or 0. Known once the child has ended.
  int error() const { return error_.load(std::memory_order_acquire); }  // partner: child()

 private:
  static int child(void* spawned);
  /// In the child. The first failure as -errno; does not return when there is none.
  long become_program() const;

  const Program& program_;
  const ProcessDefaults& defaults_;
  const pid_t parent_;
  std::vector<char*> arguments_;
  std::vector<char*> environment_;
  std::vector<cpu_set_t> cpus_;
  std::unique_ptr<std::byte[]> stack_;
  pid_t pid_ = -1;
  std::atomic<int> error_ = 0;
  /// Not 0 while the child uses our memory: the kernel clears it at exec and at exit.
  std::atomic<int> in_our_memory_ = 0;
};

/// Where the shell would find `name`: itself when it holds a slash, else in the folders of `path`.
/// Empty: nowhere.
std::string find_program(const std::string& name, const std::string& path);

}  // namespace hvd::job
