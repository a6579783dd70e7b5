// The search for workers that are stopped (SIGSTOP) while others wait for them and have no sign of
// life of them: in `init`, or in an elastic job before the next generation. A value; pure.
#pragma once

#include <set>
#include <utility>

#include "core/base/clock.h"
#include "core/transport/worker_id.h"

namespace hvd::launcher {

/// WorkerStopped follows for each worker that is stopped now, if others wait.
struct LookForStopped {
  /// It is not known whether others wait: only if a rank in `init` waits for another one.
  bool only_in_init = false;
  bool operator==(const LookForStopped&) const = default;
};
struct WorkerStopped {
  WorkerId worker;
};

class StoppedSearch {
 public:
  explicit StoppedSearch(TimePoint begin) : last_(begin) {}

  /// The next look: two in the time in which a silent worker is given up.
  TimePoint due(Duration heartbeat) const { return last_ + heartbeat / 2; }
  void look(TimePoint now) {
    last_ = now;
    found_before_ = std::exchange(found_, {});
  }
  /// The last look has found the worker. Returns whether the look before it has, too: otherwise the
  /// worker may be stopped only for a moment.
  bool has_stayed(const WorkerId& worker) {
    found_.insert(worker);
    return found_before_.contains(worker);
  }

 private:
  TimePoint last_;
  std::set<WorkerId> found_, found_before_;
};

}  // namespace hvd::launcher
