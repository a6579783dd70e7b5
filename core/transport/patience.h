// The idle policy of the progress thread: spin, yield, then sleep.
#pragma once

#include <sched.h>

#include <chrono>
#include <utility>

namespace hvd {

/// Used by the waiting thread only.
class Patience {
 public:
  // Tuned by measurement, see docs/decisions/0012.
  static constexpr std::chrono::microseconds kSpin{2};
  static constexpr std::chrono::microseconds kYield{50};
  // Polls before the clock is read, which costs as much as several polls.
  static constexpr int kPolls = 64;

  /// `spare_cores`: every local rank has a core of its own, so that spinning delays no other rank.
  /// `yield`: time from the first poll without progress until sleeping.
  explicit Patience(bool spare_cores, std::chrono::microseconds yield = kYield)
      : spare_cores_(spare_cores), yield_(yield) {}
  void renew() {
    waiting_ = false;
    polls_ = 0;
  }
  /// Waits for a moment; returns false when it is time to sleep.
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
