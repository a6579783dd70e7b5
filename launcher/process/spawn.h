// Starts processes without copying memory, and without waiting for the exec of the previous one.
// Until exec a child runs in its parent's memory, so it makes raw system calls only, and the parent
// keeps that memory alive.
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

namespace hvd::launcher {

/// Process settings that horovodrun changed for itself; its children get these values.
struct ProcessDefaults {
  sigset_t signal_mask{};
  struct sigaction on_broken_pipe {};
  rlimit open_files{};
};

/// Returns the current settings of this process.
ProcessDefaults current_defaults();

/// Descriptors of the parent that become 0, 1 and 2 of the child.
struct Program {
  std::string path;
  std::vector<std::string> arguments;
  std::vector<std::string> environment;
  int in = -1;
  int out = -1;
  int err = -1;
  std::vector<int> cpus{};  ///< that it may use; empty: those of the parent
};

/// Returns a null-terminated array for exec. `texts` outlives it.
std::vector<char*> pointers(const std::vector<std::string>& texts);

/// A child process, and the memory that it uses until exec. Owned and used by one thread.
class Spawned {
 public:
  /// The child leads its own process group and dies with the calling thread. Both arguments must
  /// outlive this. If no process can be made, pid() is -1 and error() is the reason.
  Spawned(const Program& program, const ProcessDefaults& defaults);
  Spawned(Program&&, const ProcessDefaults&) = delete;  // nor for temporaries
  Spawned(const Program&, ProcessDefaults&&) = delete;
  Spawned(const Spawned&) = delete;
  Spawned& operator=(const Spawned&) = delete;
  /// Kills a child that has not reached exec, and returns once it has left our memory. Does not
  /// reap it.
  ~Spawned();

  pid_t pid() const { return pid_; }
  /// Why the program could not be started (errno), or 0. Valid once the child has ended.
  int error() const { return error_.load(std::memory_order_acquire); }  // partner: child()

 private:
  // ASan's records of the stack belong to the parent's thread, so these two are not instrumented.
  [[gnu::no_sanitize_address]] static int child(void* spawned);
  /// Runs in the child. Does not return on success; returns -errno of the first failure.
  [[gnu::no_sanitize_address]] long become_program() const;

  const Program& program_;
  const ProcessDefaults& defaults_;
  const pid_t parent_;
  std::vector<char*> arguments_;
  std::vector<char*> environment_;
  std::vector<cpu_set_t> cpus_;
  std::unique_ptr<std::byte[]> stack_;
  pid_t pid_ = -1;
  std::atomic<int> error_ = 0;
  /// Nonzero while the child uses our memory: the kernel clears it at exec and at exit.
  std::atomic<int> in_our_memory_ = 0;
};

/// Returns the program that a shell would run for `name`: `name` itself if it contains a slash,
/// else the first match in the folders of `path`. Empty if there is none.
std::string find_program(const std::string& name, const std::string& path);

}  // namespace hvd::launcher
