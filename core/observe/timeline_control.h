// Starts the timeline, ends it, and lets it go on in another file.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "core/base/clock.h"
#include "core/observe/observer.h"
#include "core/observe/timeline.h"

namespace hvd {

/// Any thread may call any function. The observer and the clock outlive it; times in events are
/// those of the same clock.
class TimelineControl {
 public:
  TimelineControl(Observer& observer, const Clock& clock) : observer_(observer), clock_(clock) {}
  ~TimelineControl() { stop(); }

  /// What happens from now on goes to a new trace in `path`, and nothing more to the former one,
  /// which is complete. Throws Error{invalid_argument} when there can be no such file; then all
  /// stays as it is.
  void start(const std::string& path, bool mark_cycles);
  /// The trace is complete when this returns. Does nothing when there is none.
  void stop();

 private:
  void end_active();

  Observer& observer_;
  const Clock& clock_;
  std::mutex mutex_;
  std::unique_ptr<Timeline> active_;  ///< under mutex_; a sink of the observer
};

}  // namespace hvd
