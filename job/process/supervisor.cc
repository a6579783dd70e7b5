#include "job/process/supervisor.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <map>
#include <memory>
#include <utility>

#include "core/base/error.h"
#include "job/process/descendants.h"

namespace hvd::job {
namespace {

using Kind = SupervisorMessage::Kind;

/// How often what survived a SIGKILL to all is killed again (it was being born).
constexpr int kKillRoundMilliseconds = 2;
/// For what is left when whoever started us is gone. After this everything has been killed that can
/// be found, and nobody waits for the rest.
constexpr std::chrono::seconds kLastPatience{10};

/// Lives in the supervisor's process alone.
class SupervisorLoop {
 public:
  SupervisorLoop(const SupervisorTask& task, int socket) : task_(task), socket_(socket) {}

  /// Nothing above this frame belongs to this process: no exception may unwind it.
  [[noreturn]] void run() noexcept {
    const int signals = watch_signals();
    if (signals < 0) vanish();
    start_ranks();
    while (true) {
      if (!descendants_.reap([this](pid_t pid, int status) { reaped(pid, status); }))
        end(Kind::nothing_left);
      if (killing_) descendants_.signal(SIGKILL);
      pollfd watched[] = {{socket_, POLLIN, 0}, {signals, POLLIN, 0}};
      if (poll(watched, 2, killing_ ? kKillRoundMilliseconds : -1) < 0 && errno != EINTR) vanish();
      if (watched[1].revents != 0) {
        signalfd_siginfo ignored;
        if (read(signals, &ignored, sizeof(ignored)) < 0 && errno != EAGAIN) vanish();
      }
      if (watched[0].revents != 0) take_command();
    }
  }

 private:
  /// Everything is blocked: only SIGKILL ends the supervisor, and SIGCHLD is read.
  static int watch_signals() {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, nullptr);
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    return signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
  }

  void start_ranks() {
    int error = 0;
    for (const Program& program : task_.programs) {
      const auto index = static_cast<int32_t>(spawned_.size());
      const auto& spawned = spawned_.emplace_back(
          error == 0 ? std::make_unique<Spawned>(program, task_.defaults) : nullptr);
      if (error == 0 && spawned->pid() < 0) error = spawned->error();
      if (error != 0) {  // of no use without this one: the others are not started
        send({Kind::not_started, index, error});
        continue;
      }
      index_of_[spawned->pid()] = index;
      descendants_.add(spawned->pid());
      send({Kind::started, index, spawned->pid()});
    }
    // A rank's output ends when the rank and its children have closed it, not when we have; its
    // input is read by nobody when they have. (Several may read the same.)
    for (const Program& program : task_.programs) {
      if (program.in > STDERR_FILENO) close(program.in);
      close(program.out);
      close(program.err);
    }
  }

  void reaped(pid_t pid, int status) {
    const auto found = index_of_.find(pid);
    if (found == index_of_.end()) return;  // an orphan of a rank
    const int32_t index = found->second;
    index_of_.erase(found);
    const int error = spawned_[static_cast<size_t>(index)]->error();
    send(error == 0 ? SupervisorMessage{Kind::exited, index, status}
                    : SupervisorMessage{Kind::not_started, index, error});
  }

  void take_command() {
    SupervisorMessage command{};
    const ssize_t size = recv(socket_, &command, sizeof(command), 0);
    if (size < 0 && errno == EINTR) return;
    if (size != sizeof(command)) vanish();
    if (command.value == SIGKILL) {
      killing_ = true;
    } else {
      descendants_.signal(command.value);
    }
  }

  void send(const SupervisorMessage& message) {
    if (::send(socket_, &message, sizeof(message), MSG_NOSIGNAL) < 0) vanish();
  }

  [[noreturn]] void end(Kind last_word) {
    const SupervisorMessage message{last_word, 0, 0};
    ::send(socket_, &message, sizeof(message), MSG_NOSIGNAL);
    _exit(0);
  }

  /// Whoever started us is gone.
  [[noreturn]] void vanish() {
    descendants_.kill_all(kLastPatience, [](pid_t, int) {});
    _exit(1);
  }

  const SupervisorTask& task_;
  int socket_;
  std::vector<std::unique_ptr<Spawned>> spawned_;  ///< by rank; none: not started
  std::map<pid_t, int32_t> index_of_;              ///< of those that run
  Descendants descendants_;
  bool killing_ = false;
};

}  // namespace

Supervisor start_supervisor(const SupervisorTask& task) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    fail_errno("making the supervisor's socket");
  FileDescriptor ours(ends[0]);
  const FileDescriptor theirs(ends[1], AtFork::keep);
  const pid_t pid = fork();
  if (pid < 0) fail_errno("starting the supervisor");
  if (pid == 0) {
    setsid();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_NAME, "hvd-supervisor");
    SupervisorLoop(task, theirs.get()).run();
  }
  return {pid, std::move(ours)};
}

}  // namespace hvd::job
