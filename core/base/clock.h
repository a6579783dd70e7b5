// Time, as one of the three seams (Waiter, Inbox, Clock) at which the simulator stands in for the
// machine. Nothing else in core/ reads the time.
#pragma once

#include <chrono>

namespace hvd {

using TimePoint = std::chrono::steady_clock::time_point;
using Duration = std::chrono::steady_clock::duration;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const = 0;
};

class SystemClock final : public Clock {
 public:
  TimePoint now() const override { return std::chrono::steady_clock::now(); }
};

/// Stands still until it is moved. For tests and the simulator.
class ManualClock final : public Clock {
 public:
  TimePoint now() const override { return now_; }
  void advance(Duration by) { now_ += by; }

 private:
  TimePoint now_{};
};

}  // namespace hvd
