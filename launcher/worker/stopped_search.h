// The search for workers that are stopped (SIGSTOP) while others wait for them and have no sign of
// life of them: in `init`, or in an elastic job before the next generation. A value; pure.
#pragma once

#include <map>
#include <set>

#include "core/base/clock.h"
#include "core/transport/worker_id.h"

namespace hvd::launcher {

/// WorkerStopped follows for each worker that is stopped now, if others wait.
struct LookForStopped {
  /// It is not known whether others wait: only if a rank in `init`, which runs, waits for others.
  bool only_in_init = false;
  bool operator==(const LookForStopped&) const = default;
};
struct WorkerStopped {
  WorkerId worker;
};

class StoppedSearch {
 public:
  /// Three looks in a row, which take two thirds of the heartbeat, must find a worker. So it is
  /// given up when it has been stopped for two thirds to all of the heartbeat.
  static constexpr int kLooksPerHeartbeat = 3;

  explicit StoppedSearch(TimePoint begin) : last_(begin) {}

  TimePoint due(Duration heartbeat) const { return last_ + period(heartbeat); }
  void look(TimePoint now) {
    last_ = now;
    std::erase_if(since_, [&](const auto& entry) { return !found_.contains(entry.first); });
    found_.clear();
  }
  /// The last look has found the worker. Returns whether it is given up.
  bool found(const WorkerId& worker, Duration heartbeat) {
    found_.insert(worker);
    const TimePoint since = since_.try_emplace(worker, last_).first->second;
    return last_ - since >= (kLooksPerHeartbeat - 1) * period(heartbeat);
  }

 private:
  static Duration period(Duration heartbeat) { return heartbeat / kLooksPerHeartbeat; }

  TimePoint last_;
  std::set<WorkerId> found_;             ///< by the last look
  std::map<WorkerId, TimePoint> since_;  ///< the first of the looks in a row
};

}  // namespace hvd::launcher
