// The search for workers that are stopped (SIGSTOP) while others wait for them and have no sign of
// life of them: in `init`, or in an elastic job before the next generation. A value; pure.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/transport/worker_id.h"

namespace hvd::launcher {

/// WorkersStopped follows.
struct LookForStopped {
  /// It is not known whether others wait: only if a rank in `init`, which runs, waits for others.
  bool only_in_init = false;
  bool operator==(const LookForStopped&) const = default;
};
/// The answer: all workers that are stopped now, if others wait for them.
struct WorkersStopped {
  std::vector<WorkerId> workers;
};

class StoppedSearch {
 public:
  /// Answers in a row that must name a worker. It is given up then: it has been stopped for about
  /// two thirds to all of the heartbeat.
  static constexpr int kAnswers = 3;

  explicit StoppedSearch(TimePoint begin) : last_(begin) {}

  /// When the next look is due: there are as many in the heartbeat.
  TimePoint due(Duration heartbeat) const { return last_ + heartbeat / kAnswers; }
  void look(TimePoint now, Duration heartbeat) {
    if (now - last_ > heartbeat) answers_.clear();  // the launcher itself has not run
    last_ = now;
  }
  /// Returns the workers that are given up.
  std::vector<WorkerId> answer(const std::vector<WorkerId>& stopped) {
    std::map<WorkerId, int> answers;
    std::vector<WorkerId> given_up;
    for (const WorkerId& worker : stopped) {
      const auto before = answers_.find(worker);
      answers[worker] = (before == answers_.end() ? 0 : before->second) + 1;
      if (answers[worker] >= kAnswers) given_up.push_back(worker);
    }
    answers_ = std::move(answers);
    return given_up;
  }

 private:
  TimePoint last_;
  std::map<WorkerId, int> answers_;  ///< in a row that have named the worker
};

}  // namespace hvd::launcher
