// Which of two ways for calls of one kind is the faster one where a job runs now: both are tried,
// and tried again from time to time, since a virtual machine may be moved. All ranks of a group
// hold one, make the same calls, and tell each other what these took, so that they choose alike
// without a word beside that. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "core/base/clock.h"

namespace hvd {

class FasterWay {
 public:
  /// Calls of each way, in a row. Only after some of them do caches hold what that way leaves
  /// there: one that goes round a ring of 3 MiB in pieces of 256 KiB has to have been round. After
  /// five, an alltoall of 256 KiB at np 2 went the way that takes 13 us and not the one of 9.
  static constexpr size_t kSettling = 32;
  static constexpr size_t kTimed = 8;    ///< that follow
  static constexpr size_t kKept = 4000;  ///< calls before both are tried again

  /// What the timed calls took together. Not one by one: who runs ahead in one waits in the next.
  struct Times {
    Duration first{};
    Duration second{};
  };

  /// By which of the two the next call goes.
  bool takes_second() const { return is_trying() ? calls_ >= kOfEach : second_is_faster_; }
  /// While it does, calls are timed, and took() is called after each; else passed().
  bool is_trying() const { return calls_ < 2 * kOfEach; }
  /// Of this rank, for a call of so many bytes. True when all trials are made: now all tell each
  /// other times(), and decide().
  bool took(Duration time, size_t bytes) {
    if (calls_ % kOfEach >= kSettling) {
      (takes_second() ? times_.second : times_.first) += time;
      (takes_second() ? second_bytes_ : first_bytes_) += static_cast<double>(bytes);
    }
    return ++calls_ == 2 * kOfEach;
  }
  void passed() {
    if (++calls_ == 2 * kOfEach + kKept) *this = FasterWay();
  }

  const Times& times() const { return times_; }
  /// By those of all ranks, the same on all: what the rank took that had to wait least for the
  /// others, a byte.
  void decide(std::span<const Times> of_ranks) {
    Times least = of_ranks.front();
    for (const Times& times : of_ranks) {
      least.first = std::min(least.first, times.first);
      least.second = std::min(least.second, times.second);
    }
    const auto count = [](Duration time) { return static_cast<double>(time.count()); };
    second_is_faster_ = count(least.second) * first_bytes_ < count(least.first) * second_bytes_;
  }

 private:
  static constexpr size_t kOfEach = kSettling + kTimed;

  Times times_{};
  double first_bytes_ = 0, second_bytes_ = 0;  ///< of the timed calls; the same on all ranks
  size_t calls_ = 0;
  bool second_is_faster_ = false;
};

}  // namespace hvd
