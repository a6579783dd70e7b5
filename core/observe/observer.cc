#include "core/observe/observer.h"

#include <algorithm>

#include "core/base/assert.h"
#include "core/base/start_thread.h"

namespace hvd {
namespace {

using std::chrono_literals::operator""ms;

// What is recorded reaches the sinks within this time: often enough for who watches a running job,
// seldom enough to cost the job nothing.
constexpr auto kLinger = 20ms;

}  // namespace

Observer::~Observer() {
  HVD_ASSERT(sinks_.empty());
  ring_.close();
  if (thread_.joinable()) thread_.join();
}

void Observer::add(Sink& sink) {
  const std::lock_guard lock(mutex_);
  ring_.open();
  deliver();
  sinks_.push_back(&sink);
  listening_.store(true, std::memory_order_relaxed);
  if (!thread_.joinable()) thread_ = start_thread([this] { main(); });
}

void Observer::remove(Sink& sink) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find(sinks_.begin(), sinks_.end(), &sink);
  HVD_ASSERT(found != sinks_.end());
  deliver();
  sinks_.erase(found);
  if (sinks_.empty()) listening_.store(false, std::memory_order_relaxed);
}

void Observer::main() {
  while (ring_.wait(kLinger)) {
    const std::lock_guard lock(mutex_);
    deliver();
  }
}

// With mutex_.
void Observer::deliver() {
  taken_.clear();
  ring_.take(taken_);
  if (taken_.empty()) return;
  for (Sink* sink : sinks_) sink->take(taken_);
}

}  // namespace hvd
