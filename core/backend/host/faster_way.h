// Which of two ways for calls of one kind is the faster one where a job runs now: both are tried,
// and tried again from time to time, since a virtual machine may be moved. All ranks of a group
// hold one, make the same calls, and tell each other what these took, so that they choose alike
// without a word beside that. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "core/base/bytes.h"
#include "core/base/clock.h"

namespace hvd {

class FasterWay {
 public:
  /// So many calls are enough, or fewer, but `least`, once they have moved so many bytes.
  struct Enough {
    size_t calls, least, bytes;
  };
  /// Of each way, in a row. Only after some calls do caches hold what that way leaves there: one
  /// that goes round a ring of 3 MiB in pieces of 256 KiB has to have been round. After five, an
  /// alltoall of 256 KiB at np 2 went the way that takes 13 us and not the one of 9.
  static constexpr Enough kSettling{.calls = 32, .least = 2, .bytes = 8 * MiB};
  static constexpr Enough kTimed{.calls = 8, .least = 4, .bytes = 16 * MiB};  ///< that follow
  static constexpr size_t kMostTrials = kSettling.calls + kTimed.calls;       ///< of each way
  static constexpr size_t kKept = 4000;  ///< calls before both are tried again

  /// What the timed calls took together. Not one by one: who runs ahead in one waits in the next.
  struct Times {
    Duration first{};
    Duration second{};
  };

  /// By which of the two the next call goes.
  bool takes_second() const { return is_trying() ? first_.is_over() : second_is_faster_; }
  /// While it does, calls are timed, and took() is called after each; else passed().
  bool is_trying() const { return !second_.is_over(); }
  /// Of this rank, for a call of so many bytes. True when all trials are made: now all tell each
  /// other times(), and decide().
  bool took(Duration time, size_t bytes) {
    (takes_second() ? second_ : first_).took(time, bytes);
    return !is_trying();
  }
  void passed() {
    if (++kept_ == kKept) *this = FasterWay();
  }

  Times times() const { return {first_.time, second_.time}; }
  /// By those of all ranks, the same on all: what the rank took that had to wait least for the
  /// others, a byte.
  void decide(std::span<const Times> of_ranks) {
    Times least = of_ranks.front();
    for (const Times& times : of_ranks) {
      least.first = std::min(least.first, times.first);
      least.second = std::min(least.second, times.second);
    }
    const auto count = [](auto value) { return static_cast<double>(value); };
    second_is_faster_ = count(least.second.count()) * count(first_.timed.bytes) <
                        count(least.first.count()) * count(second_.timed.bytes);
  }

 private:
  struct Calls {
    size_t count = 0;
    size_t bytes = 0;
    bool are(const Enough& enough) const {
      return count >= enough.calls || (count >= enough.least && bytes >= enough.bytes);
    }
  };

  /// Of one way. Its calls are the same on all ranks.
  struct Trial {
    Calls settling, timed;
    Duration time{};

    bool is_over() const { return timed.are(kTimed); }
    void took(Duration one, size_t bytes) {
      const bool is_timed = settling.are(kSettling);
      Calls& calls = is_timed ? timed : settling;
      ++calls.count;
      calls.bytes += bytes;
      if (is_timed) time += one;
    }
  };

  Trial first_, second_;
  size_t kept_ = 0;
  bool second_is_faster_ = false;
};

}  // namespace hvd
