#include "launcher/process/supervisor_loop.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/clock.h"
#include "core/transport/file_descriptor.h"
#include "launcher/process/descendants.h"
#include "launcher/process/keeper.h"

namespace hvd::launcher {
namespace {

using Kind = SupervisorMessage::Kind;

/// Interval of repeated SIGKILL, for processes that were being forked during the previous one.
constexpr int kKillRoundMilliseconds = 2;
/// While output is dropped: the interval, and the reads per worker.
constexpr int kDropRoundMilliseconds = 5, kDropsAtOnce = 16;
/// From SIGINT to SIGKILL, at most, after the loss of the starter.
constexpr std::chrono::milliseconds kAfterInterrupt{2000};
constexpr int kForEver = -1;
constexpr int kNothing = -1;  // ignored by poll()
/// Limit for killing what is left after the starter has ended. Processes that are left after it are
/// not waited for.
constexpr std::chrono::seconds kLastPatience{10};

/// Exists only in the supervisor's process.
class SupervisorLoop {
 public:
  SupervisorLoop(const SupervisorSetup& setup, int socket) noexcept
      : defaults_(setup.defaults),
        workers_commit_(setup.workers_commit),
        commits_when_lost_(setup.commits_when_lost),
        grace_(setup.grace),
        socket_(socket),
        keeper_(setup.keeper, setup.key),
        keeper_error_(errno) {}

  /// Frames above this one belong to the parent: no exception may unwind them.
  [[noreturn]] void run() noexcept {
    const int signals = watch_signals();
    if (signals < 0) vanish();
    while (true) {
      if (!descendants_.reap([this](pid_t pid, int status) { reaped(pid, status); })) be_empty();
      if (killing_) descendants_.signal(SIGKILL);
      turn(signals);
    }
  }

 private:
  /// All signals are blocked: only SIGKILL ends the supervisor, and SIGCHLD is read.
  static int watch_signals() {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, nullptr);
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    return signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
  }

  /// Waits for the next event and handles it.
  void turn(int signals) {
    const bool rests = std::chrono::steady_clock::now() < keeper_rests_until_;
    pollfd watched[] = {
        {socket_, POLLIN, 0}, {signals, POLLIN, 0}, {rests ? kNothing : keeper_.fd(), POLLIN, 0}};
    int timeout = rests ? static_cast<int>(Keeper::kBackOff.count()) : kForEver;
    if (killing_) timeout = kKillRoundMilliseconds;
    const int ready = poll(watched, std::size(watched), timeout);
    if (ready < 0 && errno != EINTR) vanish();
    if (ready <= 0) return;
    if (watched[1].revents != 0) {
      signalfd_siginfo ignored;
      if (read(signals, &ignored, sizeof(ignored)) < 0 && errno != EAGAIN) vanish();
    }
    if (watched[0].revents != 0) take_command();
    if (watched[2].revents != 0 && !keeper_.answer())
      keeper_rests_until_ = std::chrono::steady_clock::now() + Keeper::kBackOff;
  }

  void start(const ReceivedMessage& received) {
    is_empty_ = false;
    if (static_cast<StartPart>(received.message.value) == StartPart::first)
      start_error_ = keeper_.fd() < 0 ? keeper_error_ : 0;
    int32_t index = received.message.index;
    for (const WorkerProgram& program : received.programs) start(index++, program);
    // The descriptors are closed here, so a worker's output ends when the worker and its children
    // have closed it.
  }

  void start(int32_t index, const WorkerProgram& worker) {
    ++told_to_start_;
    if (start_error_ == 0) {
      const auto& here = workers_.emplace(index, std::make_unique<Worker>(worker, defaults_));
      if (grace_.count() > 0) here.first->second->keep_outputs();
      const Spawned& spawned = here.first->second->spawned;
      if (spawned.pid() >= 0) {
        pid_of_[index] = spawned.pid();
        index_of_[spawned.pid()] = index;
        descendants_.add(spawned.pid());
        keeper_.add(worker.rank, worker.generation, spawned.pid());
        return send({Kind::started, index, spawned.pid()});
      }
      start_error_ = spawned.error();
      workers_.erase(index);
    }
    send({Kind::not_started, index,
          start_error_});  // later programs of this start are of no use alone
  }

  void reaped(pid_t pid, int status) {
    keeper_.forget(pid);
    const auto found = index_of_.find(pid);
    if (found == index_of_.end()) return;  // an orphan of a worker
    const int32_t index = found->second;
    index_of_.erase(found);
    const int error = workers_.at(index)->spawned.error();
    workers_.erase(index);
    send(error == 0 ? SupervisorMessage{Kind::exited, index, status}
                    : SupervisorMessage{Kind::not_started, index, error});
  }

  void take_command() {
    const auto received = receive_message(socket_);
    if (!received) vanish();
    const SupervisorMessage& message = received->message;
    switch (message.kind) {
      case Kind::start:
        return start(*received);
      case Kind::signal_all:
        return signal_all(message.value);
      case Kind::signal:
        return signal(message.index, message.value);
      case Kind::no_more_workers:
        more_ = false;
        if (is_empty_) _exit(0);
        return;
      default:
        vanish();
    }
  }

  void signal_all(int number) {
    switch (number) {
      case SIGKILL:
        killing_ = !is_empty_;
        return;
      case SIGINT:
        return descendants_.signal_groups(SIGINT);
      case SIGUSR1:
      case SIGUSR2:
        return descendants_.signal_handlers(number);
      case SIGTERM:
        if (workers_commit_) return descendants_.signal_handlers(number);
        [[fallthrough]];
      default:
        return descendants_.signal(number);
    }
  }

  /// A worker that has ended may have left its process group, unless its number has been reused.
  void signal(int32_t index, int number) {
    const auto started = pid_of_.find(index);
    if (started == pid_of_.end()) return;
    const pid_t pid = started->second;
    if (const auto now = index_of_.find(pid); now != index_of_.end() && now->second != index)
      return;
    switch (number) {
      case SIGINT:
        return descendants_.signal_group(pid, SIGINT);
      case SIGUSR1:
      case SIGUSR2:
        return descendants_.signal_handlers(pid, number);
      case SIGTERM:
        if (workers_commit_) return descendants_.signal_handlers(pid, number);
        [[fallthrough]];
      default:
        return descendants_.signal(pid, number);
    }
  }

  /// No process is below this one, until the next start or for good.
  void be_empty() {
    if (!std::exchange(is_empty_, true)) {
      killing_ = false;
      pid_of_.clear();
      send({Kind::nothing_left, 0, told_to_start_});
    }
    if (!more_) _exit(0);
  }

  void send(const SupervisorMessage& message) {
    if (::send(socket_, &message, sizeof(message), MSG_NOSIGNAL) < 0) vanish();
  }

  /// The process that started this one has ended.
  [[noreturn]] void vanish() {
    if (grace_.count() > 0) let_workers_end(std::exchange(grace_, {}));
    descendants_.kill_all(kLastPatience, [](pid_t, int) {});
    _exit(1);
  }

  void let_workers_end(std::chrono::milliseconds grace) {
    const TimePoint begin = std::chrono::steady_clock::now();
    if (commits_when_lost_) {
      descendants_.signal_handlers(SIGTERM);
    } else {
      await_workers_until(begin + grace - std::min(kAfterInterrupt, grace / 2));
      descendants_.signal_groups(SIGINT);
    }
    await_workers_until(begin + grace);
  }

  /// A worker that writes to a pipe without a reader, or to a full one, would not reach its end.
  void await_workers_until(TimePoint deadline) {
    const auto ended = [this](pid_t pid, int) { index_of_.erase(pid); };
    while (descendants_.reap(ended) && !index_of_.empty() &&
           std::chrono::steady_clock::now() < deadline) {
      for (const auto& [index, worker] : workers_) worker->drop_output();
      poll(nullptr, 0, kDropRoundMilliseconds);
    }
  }

  struct Worker {
    Worker(const WorkerProgram& worker, const ProcessDefaults& defaults)
        : program(worker.program), spawned(program, defaults) {}

    /// Opens the read ends of its pipes, which only the starter has otherwise.
    void keep_outputs() {
      for (const int pipe : {program.out, program.err}) {
        const std::string path = "/proc/self/fd/" + std::to_string(pipe);
        outputs.emplace_back(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
      }
    }
    void drop_output() const {
      std::array<char, 64 * KiB> bytes;
      for (const FileDescriptor& pipe : outputs)
        for (int round = 0; round < kDropsAtOnce && pipe; ++round)
          if (read(pipe.get(), bytes.data(), bytes.size()) <= 0) break;
    }

    const Program program;
    const Spawned spawned;
    std::vector<FileDescriptor> outputs{};
  };

  const ProcessDefaults& defaults_;
  const bool workers_commit_;
  const bool commits_when_lost_;
  std::chrono::milliseconds grace_;
  int socket_;
  std::map<int32_t, std::unique_ptr<Worker>> workers_;  ///< by index; running
  std::map<int32_t, pid_t> pid_of_;                     ///< also of ended ones
  std::map<pid_t, int32_t> index_of_;                   ///< of running ones
  Descendants descendants_;
  Keeper keeper_;
  int keeper_error_;  ///< errno if it does not listen
  TimePoint keeper_rests_until_{};
  int32_t told_to_start_ = 0;
  int start_error_ = 0;  ///< of this start: programs after the failed one are not started
  bool more_ = true;
  bool is_empty_ = true;  ///< and the starter was told
  bool killing_ = false;
};

}  // namespace

void run_supervisor(const SupervisorSetup& setup, int socket) {
  SupervisorLoop(setup, socket).run();
}

}  // namespace hvd::launcher
