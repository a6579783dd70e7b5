#include "core/observe/event_ring.h"

#include <utility>

namespace hvd {
namespace {

constexpr size_t kHurry = EventRing::kCapacity / 2;

}  // namespace

void EventRing::open() {
  const std::lock_guard lock(mutex_);
  events_.reserve(kCapacity);
}

void EventRing::push(Event&& event) {
  const std::lock_guard lock(mutex_);
  if (events_.size() >= kCapacity || events_.size() == events_.capacity()) {
    ++dropped_;
    dropped_last_ = event.time;
    return;
  }
  events_.push_back(std::move(event));
  if (events_.size() == 1 || events_.size() == kHurry) changed_.notify_all();
}

void EventRing::take(std::vector<Event>& out) {
  out.reserve(kCapacity + 1);  // outside the lock; after the first calls there is nothing to do
  const std::lock_guard lock(mutex_);
  if (events_.capacity() > 0) out.swap(events_);
  const uint64_t dropped = std::exchange(dropped_, 0);
  if (dropped > 0)
    out.push_back({.type = Event::Type::lost, .time = dropped_last_, .count = dropped});
}

bool EventRing::wait(std::chrono::milliseconds linger) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return closed_ || !events_.empty(); });
  changed_.wait_for(lock, linger, [this] { return closed_ || events_.size() >= kHurry; });
  return !closed_;
}

void EventRing::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

}  // namespace hvd
