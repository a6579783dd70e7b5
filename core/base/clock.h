// The clock: one of the three interfaces (Waiter, Inbox, Clock) that the simulator replaces. Other
// code in core/ does not read the time directly.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

namespace hvd {

using TimePoint = std::chrono::steady_clock::time_point;
using Duration = std::chrono::steady_clock::duration;

/// The earlier one of two timers, each of which may be off.
inline std::optional<TimePoint> earlier(std::optional<TimePoint> a, std::optional<TimePoint> b) {
  return a && b ? std::min(*a, *b) : a ? a : b;
}

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const = 0;
};

class SystemClock final : public Clock {
 public:
  TimePoint now() const override { return std::chrono::steady_clock::now(); }
};

/// A clock that advances only by advance(). For tests and the simulator.
class ManualClock final : public Clock {
 public:
  TimePoint now() const override { return now_; }
  void advance(Duration by) { now_ += by; }

 private:
  TimePoint now_{};
};

}  // namespace hvd
