// The process between the launcher, or its agent on another host, and the workers of a host. It
// starts workers, gives them the job's key (keeper.h), reports their exits, and signals them and
// the processes below it on request. It kills all of them when the process that started it ends,
// after a grace period. It makes no decisions.
//
// It leads its own session, so that no signal of the terminal or to the launcher's process group
// reaches it. It is a subreaper, so that no descendant escapes it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <span>
#include <string>

#include "core/transport/file_descriptor.h"
#include "core/transport/handshake.h"
#include "launcher/process/spawn.h"
#include "launcher/process/supervisor_messages.h"

namespace hvd::launcher {

/// The name of its process, as /proc/<pid>/comm shows it.
inline constexpr const char* kSupervisorName = "hvd-supervisor";

struct SupervisorSetup {
  ProcessDefaults defaults;
  std::string keeper{};  ///< name of the socket that gives the key to the workers
  JobKey key{};
  /// SIGTERM is for the processes that handle it, as SIGUSR1 is: workers leave at a commit. Their
  /// children, such as those of a data loader, are needed until then.
  bool workers_commit = false;
  /// How long workers may take to end by themselves if the starter is lost. Their output is dropped
  /// meanwhile.
  std::chrono::milliseconds grace{0};
  /// Workers get SIGTERM at the begin of `grace`, to leave at a commit. Otherwise they have time to
  /// raise an error in their next operation. Those that still run 2 s before the end get
  /// SIGINT, which is an exception in Python.
  bool commits_when_lost = false;
};

/// The starter's interface to the supervisor. Owned and used by one thread.
///
/// Which processes receive a signal:
/// - SIGKILL: everything below the supervisor, until nothing is left; or one worker, the processes
///   below it, and its process group;
/// - SIGINT: like from a terminal, the process groups of the workers. A process that a worker moved
///   to its own session, to outlive a Ctrl-C, does not get it;
/// - SIGUSR1 and SIGUSR2: the processes below each worker that handle them, or else the worker;
///   SIGTERM as well, if the workers commit;
/// - any other: the same processes as SIGKILL, once.
class Supervisor {
 public:
  /// Forks it. Throws Error{internal} if no process can be made.
  explicit Supervisor(const SupervisorSetup& setup);
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  pid_t pid() const { return pid_; }
  /// Readable if receive() has a message; -1 once the supervisor has ended.
  int fd() const { return socket_.get(); }

  /// Starts programs; may be called repeatedly. Their descriptors may be closed afterwards. If one
  /// cannot be started for lack of processes, it and those after it are `not_started`. Returns the
  /// index of the first program.
  int start(std::span<const WorkerProgram> programs);
  void signal(int index, int signal);
  void signal_all(int signal);
  /// The supervisor then ends once no process is left.
  void no_more_workers();

  /// Returns the next message; none if there is none now, or the supervisor has ended: then fd() is
  /// -1. `nothing_left` is returned only if no program was started since it was sent.
  std::optional<SupervisorMessage> receive();
  /// Once the supervisor has ended: its wait status.
  int wait_status() const { return wait_status_; }
  /// True if it ended while programs may be left, which are then orphans.
  bool is_lost() const { return is_lost_; }

 private:
  void send(const SupervisorMessage& message);
  void end(bool is_lost);

  pid_t pid_ = -1;
  FileDescriptor socket_;
  int started_ = 0;
  bool more_ = true;
  bool is_empty_ = true;
  bool is_lost_ = false;
  int wait_status_ = 0;
};

}  // namespace hvd::launcher
