#include "core/observe/timeline_control.h"

#include <chrono>
#include <utility>

namespace hvd {

void TimelineControl::start(const std::string& path, bool mark_cycles) {
  using std::chrono::system_clock;
  auto next = std::make_unique<Timeline>(path, mark_cycles);
  const std::lock_guard lock(mutex_);
  end_active();  // before the next one begins: it may be the same file
  next->begin(clock_.now(), std::chrono::duration_cast<std::chrono::microseconds>(
                                system_clock::now().time_since_epoch()));
  observer_.add(*next);
  active_ = std::move(next);
}

void TimelineControl::stop() {
  const std::lock_guard lock(mutex_);
  end_active();
}

// With mutex_.
void TimelineControl::end_active() {
  if (active_) observer_.remove(*active_);
  active_.reset();
}

}  // namespace hvd
