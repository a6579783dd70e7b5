// The launcher's state machine: decides which worker caused a failure, when the other workers get a
// signal, and when the job is over. Pure: takes events and the time, returns actions, which
// launch.cc carries out. It works with workers, not with ranks. In an elastic job, elastic.h
// decides how the job goes on; this decides how it ends.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "core/base/clock.h"
#include "core/transport/worker_id.h"
#include "launcher/elastic/elastic.h"
#include "launcher/worker/stopped_search.h"

namespace hvd::launcher {

/// A shell reports death by a signal as this number plus the signal.
inline constexpr int kShellSignal = 128;

/// The exit code of an elastic job that cannot go on, if no worker has failed.
inline constexpr int kShortage = 1;
/// The exit code of a job whose last workers are silent.
inline constexpr int kSilent = 1;

/// How a process ended. `signal` 0: it exited with `code`.
struct ExitStatus {
  int code = 0;
  int signal = 0;
  bool ok() const { return code == 0 && signal == 0; }
  /// The exit code that a shell reports: 128 + signal for a signal.
  int shell_code() const { return signal != 0 ? kShellSignal + signal : code; }
  bool operator==(const ExitStatus&) const = default;
};
/// Converts the status of waitpid(), and back.
ExitStatus exit_status(int wait_status);
int wait_status(const ExitStatus& status);

// ---- Events ----
struct WorkerExited {
  WorkerId worker;
  ExitStatus status;
};
/// The worker reported through the Store that it ends because of `cause`.
struct WorkerEnds {
  WorkerId worker;
  WorkerId cause;
  std::string reason;
  bool cause_is_silent = false;  ///< `worker` has given it up
};
/// The launcher was asked to end: by a signal, or because the process that started it has ended.
struct Interrupted {
  int signal;
  bool caller_gone = false;
  bool operator==(const Interrupted&) const = default;
};
/// No process of the job is left on this host, including processes that workers started.
struct NothingLeft {
  int host = 0;
};
/// The connection to a host is lost. Its workers end, and no further event of that host follows.
struct HostLost {
  int host = 0;
  std::string why;
  int exit_code = 1;
};
using Event =
    std::variant<WorkerExited, WorkerEnds, Interrupted, NothingLeft, HostLost, elastic::HostsFound,
                 elastic::WorkerAsks, elastic::WorkerLeaves, WorkersStopped, elastic::TimePassed>;

// ---- Actions ----
/// `first`: the failure that the job ends with. `consequence`: the worker reported that it ended
/// because of `cause`. `stopped`: ended by a signal of ours, or without a place in an elastic job.
/// `later`: failed after the first failure without reporting a cause. `survived`: the job, which is
/// elastic, goes on.
struct Announce {
  enum class Kind : uint8_t { first, consequence, stopped, later, survived };
  Kind kind;
  WorkerId worker;
  ExitStatus status;
  std::optional<WorkerId> cause{};  ///< reported by the worker, if any
  std::string reason{};
  bool operator==(const Announce&) const = default;
};
/// A host was lost with these workers, which were still running. `first`: the failure that the job
/// ends with.
struct AnnounceHost {
  int host = 0;
  std::vector<WorkerId> workers;
  std::string why;
  bool first = false;
  bool operator==(const AnnounceHost&) const = default;
};
/// Processes on these hosts may have survived SIGKILL. The launcher waits for them so long, or ends
/// without waiting for them.
struct Abandon {
  std::vector<int> hosts;
  Duration after{};
  bool operator==(const Abandon&) const = default;
};
/// Holds back the standard error of the worker, so that it is shown after the failure that caused
/// it.
struct HoldOutput {
  WorkerId worker;
  bool operator==(const HoldOutput&) const = default;
};
struct ReleaseOutput {
  WorkerId worker;
  bool operator==(const ReleaseOutput&) const = default;
};
/// The job ends because the launcher was asked to end it. The remaining processes get `sent`, and
/// after `patience` the next one of SIGINT, SIGTERM and SIGKILL.
struct AnnounceEnd {
  Interrupted by;
  int sent;
  Duration patience;
  bool operator==(const AnnounceEnd&) const = default;
};
/// Sends a signal to the workers of all hosts. Which processes receive it depends on the signal
/// (launcher/process/supervisor.h). SIGKILL is repeated until no process is left.
struct SignalAll {
  int signal;
  bool operator==(const SignalAll&) const = default;
};
/// The failure that the job ends with: the worker is stopped and others wait for it in `init`; or
/// all workers that are left have been given up by others, which have ended well. `why`: what was
/// seen of this one.
struct AnnounceSilent {
  WorkerId worker;
  std::string why;
  bool operator==(const AnnounceSilent&) const = default;
};
/// The first worker that has ended with exit code 0, in a job that is not elastic. Those that are
/// in `init`, or call it later, would wait for it in vain.
struct RefuseStarts {
  WorkerId worker;
  bool operator==(const RefuseStarts&) const = default;
};
/// An elastic job cannot go on. Comes after the announcement of its last failure, if any.
struct AnnounceShortage {
  std::string why;
  bool operator==(const AnnounceShortage&) const = default;
};
/// A decision about an elastic job, for --verbose.
struct Explain {
  std::string text;
  bool operator==(const Explain&) const = default;
};
/// No more workers will be started.
struct NoMoreWorkers {
  bool operator==(const NoMoreWorkers&) const = default;
};
struct Finish {
  int exit_code;
  bool operator==(const Finish&) const = default;
};
using Action =
    std::variant<Announce, AnnounceHost, AnnounceEnd, AnnounceSilent, AnnounceShortage,
                 RefuseStarts, Explain, Abandon, HoldOutput, ReleaseOutput, SignalAll,
                 NoMoreWorkers, Finish, elastic::StartWorker, elastic::Begin, elastic::Dismiss,
                 elastic::Tell, elastic::Abandon, elastic::Reconnect, elastic::Kill, elastic::Say,
                 elastic::ExplainWait, LookForStopped, elastic::Close, elastic::End>;

struct DriverOptions {
  std::vector<WorkerId> workers{};          ///< of the first generation
  std::optional<elastic::State> elastic{};  ///< of an elastic job
  /// In other jobs: a worker that is stopped so long is given up if others wait for it in `init`
  /// (StoppedSearch). 0: none is.
  Duration heartbeat{};
  /// From the first failure to SIGTERM. Also from the end of the last worker to SIGTERM for
  /// processes that workers left running.
  Duration grace = std::chrono::seconds(1);
  /// From SIGTERM to SIGKILL. If the launcher was asked to end: at least `grace`.
  Duration patience = std::chrono::seconds(5);
  /// From SIGINT to SIGTERM, for exception handlers to save their state. At least `grace`.
  Duration interrupt_patience = std::chrono::seconds(10);
  /// Another SIGINT within this time counts as the same Ctrl-C: a wrapper of the launcher may
  /// forward the SIGINT that the terminal has sent to both.
  Duration same_interrupt = std::chrono::milliseconds(500);
  /// Another SIGTERM or SIGHUP within this time counts as the same one: supervisors signal a
  /// process and its group. Ranks count in the same way (python/horovod/common/_departure.py).
  Duration same_end = std::chrono::seconds(2);
  /// How long the output of a worker that reported a cause is held back, and its exit at least, for
  /// that other worker to exit. The exit waits for `grace` if that is longer: a worker that causes
  /// a failure may take as long to exit as those that follow.
  Duration blame = std::chrono::seconds(1);
  /// From SIGKILL until the launcher gives up the remaining hosts: they do not answer, or a process
  /// is blocked in the kernel. After a second, the user is told.
  Duration farewell = std::chrono::seconds(10);
};

class Driver {
 public:
  explicit Driver(const DriverOptions& options);

  /// Takes the events that were seen at the same time, in any order.
  std::vector<Action> on(TimePoint now, std::vector<Event> events);
  /// The time of the next call of on() if no event comes before.
  std::optional<TimePoint> deadline() const;

 private:
  enum class Phase : uint8_t { running, grace, interrupting, terminating, killing, finished };
  /// A worker that has exited, or will exit, because of another worker.
  struct Suspect {
    WorkerEnds says;
    std::optional<ExitStatus> exited{};
    TimePoint until{};
  };

  void take(TimePoint now, const WorkerExited& event);
  void take(TimePoint now, const WorkerEnds& event);
  void take(TimePoint now, const Interrupted& event);
  void take(TimePoint now, const NothingLeft& event);
  void take(TimePoint now, const HostLost& event);
  void take(TimePoint now, const elastic::HostsFound& event) { decide(now, event); }
  void take(TimePoint now, const elastic::WorkerAsks& event) { decide(now, event); }
  void take(TimePoint now, const elastic::WorkerLeaves& event);
  void take(TimePoint now, const WorkersStopped& event);
  void take(TimePoint now, const elastic::TimePassed& event) { decide(now, event); }
  AnnounceHost lost_with(const HostLost& event);
  std::vector<Action> decided(TimePoint now, const elastic::Event& event);
  void decide(TimePoint now, const elastic::Event& event);
  Action prepared(const elastic::Action& action);
  void go_on_without(TimePoint now, const WorkerExited& event);
  void go_on_without(TimePoint now, const HostLost& event);
  void end_if_short(TimePoint now);
  void end_if_silent(TimePoint now);
  bool looks_for_stopped() const;
  void end_without(TimePoint now, const WorkerId& silent, const std::string& why);
  bool all_have_ended() const;
  void leave(TimePoint now, int host);
  void interrupt(TimePoint now, const Interrupted& by);
  void terminate(TimePoint now, Duration patience);
  void kill(TimePoint now);
  void finish(TimePoint now);
  void pass(TimePoint now);
  void refuse_starts(const WorkerId& without);
  void announce_first(TimePoint now, const WorkerId& worker, ExitStatus status);
  void announce_following(const WorkerId& worker, ExitStatus status);
  bool ended_by_us(const ExitStatus& status) const;
  void judge(TimePoint now);
  void enter(Phase phase, TimePoint until);
  bool is_running(const WorkerId& worker) const { return running_.contains(worker); }
  /// While the number of workers may change.
  bool goes_on() const { return elastic_ && !elastic_->over && phase_ == Phase::running; }

  DriverOptions options_;
  Phase phase_ = Phase::running;
  TimePoint until_ = TimePoint::max();
  TimePoint abandons_at_{};                    ///< while `killing`
  TimePoint interrupted_at_{};                 ///< first, while `interrupting`
  std::optional<TimePoint> told_to_end_at_{};  ///< by the last SIGTERM or SIGHUP that counted
  std::set<int> hosts_left_;
  std::set<WorkerId> running_;
  std::map<WorkerId, ExitStatus> exited_;
  std::set<WorkerId> dismissed_;  ///< whose exit status does not count
  std::optional<elastic::State> elastic_;
  std::optional<std::string> shortage_;  ///< why the elastic job ends
  std::optional<std::string> done_;      ///< why the elastic job begins no other generation
  int last_failure_ = kShortage;         ///< exit code, in an elastic job
  std::map<WorkerId, Suspect> suspects_;
  std::map<WorkerId, std::string> silent_;  ///< given up by others, with what they have seen
  bool starts_refused_ = false;
  StoppedSearch stopped_{TimePoint{}};
  std::optional<int> exit_code_;  ///< set by the first failure or interruption
  std::vector<Action> actions_;
};

}  // namespace hvd::launcher
