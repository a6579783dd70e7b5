// The decisions of an elastic job: which workers start, when a generation begins and with whom,
// when the job can no longer go on. One pure function from the time, the state and an event to the
// next state, the actions, and an explanation of them for --verbose.
//
// Members are the workers of the current generation. When a member is lost or hosts change, the
// members ask for places in the next generation: all survivors of a loss at once, otherwise when
// they commit. A generation begins when all members have asked; one that does not ask in time is
// given up. It does not wait for new workers, except for the minimum. New workers (newcomers) ask
// when they initialize. The members are told of them, so that they ask too. A newcomer with another
// version of Horovod is refused: it could not connect to them. A member that leaves says so before
// it ends, and the others do not wait for its end.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/clock.h"
#include "core/transport/worker_id.h"
#include "launcher/elastic/cooldown.h"
#include "launcher/worker/assignment.h"
#include "launcher/worker/stopped_search.h"

namespace hvd::launcher::elastic {

/// No new worker is started on a host after as many failed there, or after the first one if there
/// is a cooldown. Its other workers go on.
inline constexpr int kFailuresUntilDropped = 2;
/// How long newcomers that are ready wait for others that are starting, so that they join together.
inline constexpr std::chrono::seconds kGathering{5};
/// How long nothing may come from a host on which a worker was silent, and was killed, until its
/// other members are given up, too: the end of the worker, or a member that asks. An agent that can
/// be reached tells of the end within milliseconds.
inline constexpr std::chrono::milliseconds kNoNews{500};

/// How long workers that leave may take to end until the user is told that the job waits for their
/// slots: perhaps all members leave.
inline constexpr std::chrono::seconds kLeaving{2};

struct Settings {
  int min = 1;                       ///< workers; with fewer the job waits
  int target = 1;                    ///< workers that the job should have
  Duration patience{};               ///< how long it waits
  std::optional<int> reset_limit{};  ///< generations after the first one
  /// How long the members that have asked for the next generation wait for one that has not.
  Duration survivor = std::chrono::seconds(30);
  /// A member that is stopped so long is given up if others wait for it (StoppedSearch). 0: none
  /// is.
  Duration heartbeat{};
  /// How long the members of a new generation may take to connect.
  Duration start = std::chrono::seconds(30);
  std::string state_folder{};            ///< empty: none
  bool discovers = false;                ///< more hosts may appear at any time
  std::optional<Cooldown> cooldown{};    ///< none: a dropped host is not used again
  std::optional<Duration> kill_every{};  ///< a random member, for tests by the user (--chaos)
  uint64_t seed = 0;                     ///< of everything that is random
};

struct HostSlots {
  int host = 0;  ///< in the order of the job's hosts
  std::string name{};
  int slots = 0;
  bool operator==(const HostSlots&) const = default;
};

// ---- Events ----
struct WorkerEnded {
  WorkerId worker;
  bool well = false;  ///< with exit code 0
};
/// The host is lost: all its workers have ended, and none can be started there.
struct HostGone {
  int host = 0;
};
/// The hosts on which workers can be started now, in order of preference.
struct HostsFound {
  std::vector<HostSlots> hosts;
};
/// The worker has left its generation, or is new, and is ready for the next one.
struct WorkerAsks {
  WorkerId worker;
  std::string version{};  ///< of Horovod in its process
};
/// `by` has given up the worker: it is stopped, or its host or network is down.
struct WorkerSilent {
  WorkerId by;
  WorkerId worker;
  std::string why;
};
/// The worker has left its generation for good, and will end by itself.
struct WorkerLeaves {
  WorkerId worker;
};
struct TimePassed {};
using Event = std::variant<WorkerEnded, HostGone, HostsFound, WorkerAsks, WorkerSilent,
                           WorkerLeaves, WorkersStopped, TimePassed>;

// ---- Actions ----
struct StartWorker {
  WorkerId worker;
  bool operator==(const StartWorker&) const = default;
};
/// A generation begins: all its workers have asked and get their places.
struct Begin {
  Assignment assignment;
  bool operator==(const Begin&) const = default;
};
/// The worker has no place any more: its requests are refused. Its exit status does not count.
struct Dismiss {
  WorkerId worker;
  std::string why;
  bool stop = false;  ///< it is new: it is ended by a signal, and not by an error in its `init`
  bool operator==(const Dismiss&) const = default;
};
/// The members are to ask for the next generation when they commit.
struct Tell {
  bool added = false;
  bool removed = false;
  bool operator==(const Tell&) const = default;
};
/// A member of this generation was lost. Those that still wait for it need not.
struct Abandon {
  uint32_t generation = 0;
  std::string why;
  bool operator==(const Abandon&) const = default;
};
/// A lost host is to be connected to again. HostsFound follows when it is ready.
struct Reconnect {
  int host = 0;
  bool operator==(const Reconnect&) const = default;
};
/// The worker is to be killed: the user asked for it, or it is silent.
struct Kill {
  WorkerId worker;
  bool operator==(const Kill&) const = default;
};
/// A line for the user.
struct Say {
  std::string line;
  bool operator==(const Say&) const = default;
};
/// Members wait for others that have not asked. The user is to be shown why these have not.
struct ExplainWait {
  bool operator==(const ExplainWait&) const = default;
};
/// A member has ended well: no worker starts and no generation begins any more.
struct Close {
  std::string why;
  bool operator==(const Close&) const = default;
};
/// The job cannot go on.
struct End {
  std::string why;
  bool operator==(const End&) const = default;
};
using Action = std::variant<StartWorker, Begin, Dismiss, Tell, Abandon, Reconnect, Kill, Say,
                            ExplainWait, LookForStopped, Close, End>;

struct Host {
  HostSlots now;  ///< no slots: it was removed, or is lost
  int failures = 0;
  bool dropped = false;  ///< no worker is started there
  bool lost = false;
  int drops = 0;
  std::optional<TimePoint> back_at{};  ///< end of its cooldown
};

/// `starting` and `waiting` (it has asked): newcomers. `running` and `asking`: members.
enum class Standing : uint8_t { starting, waiting, running, asking };

/// Members that have asked wait for those that have not.
struct Wait {
  TimePoint since;
  bool is_explained = false;  ///< to the user
  StoppedSearch stopped;
};

/// Members that have got their places connect to each other. That they have is not told.
struct Forming {
  /// None: the first generation, whose members enter `init` at any time.
  std::optional<TimePoint> until{};
  StoppedSearch stopped;
};

struct State {
  Settings settings;
  std::vector<Host> hosts;                       ///< in order of preference
  Assignment assignment;                         ///< of the current generation
  std::map<WorkerId, Standing> workers;          ///< that have not ended
  std::set<WorkerId> dismissed;                  ///< the same, without a place
  std::set<WorkerId> leaving{};                  ///< of these, those that end by themselves
  std::map<WorkerId, std::string> versions{};    ///< of those that have asked
  std::map<std::pair<int, int>, int> started{};  ///< by host and slot: how many workers
  int resets = 0;
  Tell told{};             ///< in this generation
  bool last_left = false;  ///< the last one that left the members did so by itself
  std::optional<TimePoint> short_since{};
  bool is_shortage_told = false;
  std::optional<TimePoint> gathering_since{};
  std::optional<Wait> wait{};  ///< since the first member has asked
  /// Until a member asks for the next one, and for Settings::start after the begin of a later one.
  std::optional<Forming> forming{};
  /// By host: since when a worker there is silent, if nothing has come from there since.
  std::map<int, TimePoint> silent_since{};
  std::optional<TimePoint> kill_at{};  ///< when the next worker is killed
  int kills = 0;
  std::set<WorkerId> killed{};  ///< and not ended yet: no failures of their hosts
  bool over = false;
};

struct Decision {
  State state;
  std::vector<Action> actions;
  std::vector<std::string> explanation;
};

/// The state of a job whose first generation has just been started.
State begin(const Settings& settings, const std::vector<HostSlots>& hosts,
            const Assignment& assignment);
/// Call it with TimePassed after begin().
Decision decide(TimePoint now, State state, const Event& event);
/// When TimePassed is due, if nothing happens before.
std::optional<TimePoint> deadline(const State& state);

}  // namespace hvd::launcher::elastic
