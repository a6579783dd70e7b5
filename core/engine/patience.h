// How a thread that drives passes the time between two looks without progress, until it sleeps.
#pragma once

#include <sched.h>

#include <chrono>
#include <utility>

namespace hvd {

/// Belongs to the thread that waits.
class Patience {
 public:
  // Measured with four ranks on two cores, a flag barrier: yield 2.2 us, sleep at once 3.5, long
  // spin 50.
  static constexpr std::chrono::microseconds kSpin{2};
  static constexpr std::chrono::microseconds kYield{50};
  // Looks before the clock is asked, which takes as long as several of them.
  static constexpr int kPolls = 64;

  /// `spare_cores`: every local rank has a core of its own, so that a short spin costs nobody.
  /// `yield`: from the first look in vain until it is time to sleep.
  explicit Patience(bool spare_cores, std::chrono::microseconds yield = kYield)
      : spare_cores_(spare_cores), yield_(yield) {}
  void renew() {
    waiting_ = false;
    polls_ = 0;
  }
  /// Spends a moment; false when it is time to sleep.
  bool spend() {
    if (spare_cores_ && polls_ < kPolls) {
      ++polls_;
      return true;
    }
    const auto now = std::chrono::steady_clock::now();
    if (!std::exchange(waiting_, true)) since_ = now;
    const auto waited = now - since_;
    if (waited >= yield_) return false;
    if (!spare_cores_ || waited >= kSpin) sched_yield();
    return true;
  }

 private:
  const bool spare_cores_;
  const std::chrono::microseconds yield_;
  bool waiting_ = false;
  int polls_ = 0;  ///< since the last progress
  std::chrono::steady_clock::time_point since_{};
};

}  // namespace hvd
