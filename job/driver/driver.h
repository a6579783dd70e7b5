// What the launcher does about what happens: who is to blame for a failure, who is told to end,
// when it is over. A pure machine: events and the time go in, actions come out; launch.cc carries
// them out.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "core/base/clock.h"

namespace hvd::job {

/// How a process ended; `signal` 0: by itself, with `code`.
struct ExitStatus {
  int code = 0;
  int signal = 0;
  bool ok() const { return code == 0 && signal == 0; }
  /// As a shell tells it: 128 + signal.
  int shell_code() const { return signal != 0 ? 128 + signal : code; }
  bool operator==(const ExitStatus&) const = default;
};
/// Of what waitpid() says, and back.
ExitStatus exit_status(int wait_status);
int wait_status(const ExitStatus& status);

// ---- Events ----
struct RankExited {
  int rank;
  ExitStatus status;
};
/// The rank says through the Store that it ends because of `cause`.
struct RankEnds {
  int rank;
  int cause;
  std::string reason;
};
/// The launcher was asked to end, by a signal.
struct Interrupted {
  int signal;
};
/// No process of the job is left on this host, also none that a rank has started.
struct NothingLeft {
  int host = 0;
};
/// The way to a host is gone: what ran there is ended, and nothing more is heard of it.
struct HostLost {
  int host = 0;
  std::vector<int> ranks;  ///< all that were started there
  std::string why;
  int exit_code = 1;
};
using Event = std::variant<RankExited, RankEnds, Interrupted, NothingLeft, HostLost>;

// ---- Actions ----
/// `first`: the failure that the job ends with. `consequence`: ended because of `cause`, says the
/// rank. `stopped`: by our signal. `later`: ended badly after the first, without telling why.
struct Announce {
  enum class Kind : uint8_t { first, consequence, stopped, later };
  Kind kind;
  int rank;
  ExitStatus status;
  int cause = -1;  ///< who the rank says it was; -1: it does not say
  std::string reason{};
  bool operator==(const Announce&) const = default;
};
/// A host was lost with these ranks, which had not ended. `first`: the failure that the job ends
/// with.
struct AnnounceHost {
  int host = 0;
  std::vector<int> ranks;
  std::string why;
  bool first = false;
  bool operator==(const AnnounceHost&) const = default;
};
/// On these hosts something may be left although it was to be killed; it is left to end by itself.
struct Abandon {
  std::vector<int> hosts;
  bool operator==(const Abandon&) const = default;
};
/// What the rank writes to its standard error is kept back, so that it does not precede the failure
/// that it follows from.
struct HoldOutput {
  int rank;
  bool operator==(const HoldOutput&) const = default;
};
struct ReleaseOutput {
  int rank;
  bool operator==(const ReleaseOutput&) const = default;
};
/// To every process of the job, children of ranks too. SIGKILL is repeated until nothing is left.
struct SignalAll {
  int signal;
  bool operator==(const SignalAll&) const = default;
};
struct Finish {
  int exit_code;
  bool operator==(const Finish&) const = default;
};
using Action =
    std::variant<Announce, AnnounceHost, Abandon, HoldOutput, ReleaseOutput, SignalAll, Finish>;

struct DriverOptions {
  int ranks = 1;
  int hosts = 1;
  /// After the first failure (or, for what ranks left running, after the last rank) until SIGTERM.
  Duration grace = std::chrono::seconds(1);
  /// From SIGTERM to SIGKILL.
  Duration patience = std::chrono::seconds(5);
  /// How long the exit of a rank that names another waits for that other to exit.
  Duration blame = std::chrono::seconds(1);
  /// From SIGKILL until hosts where something is left are given up: they do not answer, or a
  /// process there waits in the kernel and does not end before that.
  Duration farewell = std::chrono::seconds(10);
};

class Driver {
 public:
  explicit Driver(const DriverOptions& options);

  /// Takes what became known at one time, in any order.
  std::vector<Action> on(TimePoint now, std::vector<Event> events);
  /// When to call on() with no events, if nothing happens before.
  std::optional<TimePoint> deadline() const;

 private:
  enum class Phase : uint8_t { running, grace, terminating, killing, finished };
  /// A rank that has exited, or says that it will, because of another one.
  struct Suspect {
    RankEnds says;
    std::optional<ExitStatus> exited{};
    TimePoint until{};
  };

  void take(TimePoint now, const RankExited& event);
  void take(TimePoint now, const RankEnds& event);
  void take(TimePoint now, const Interrupted& event);
  void take(TimePoint now, const NothingLeft& event);
  void take(TimePoint now, const HostLost& event);
  void leave(TimePoint now, int host);
  void kill(TimePoint now);
  void finish(TimePoint now);
  void pass(TimePoint now);
  void announce_first(TimePoint now, int rank, ExitStatus status);
  void announce_following(int rank, ExitStatus status);
  void judge(TimePoint now);
  void enter(Phase phase, TimePoint until);
  bool is_running(int rank) const { return !exited_.contains(rank); }

  DriverOptions options_;
  Phase phase_ = Phase::running;
  TimePoint until_ = TimePoint::max();
  std::set<int> hosts_left_;
  std::map<int, ExitStatus> exited_;
  std::map<int, Suspect> suspects_;
  std::optional<int> exit_code_;  ///< known from the first failure or interruption on
  std::vector<Action> actions_;
};

}  // namespace hvd::job
