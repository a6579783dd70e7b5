// Chooses the faster of two algorithms for calls of one kind by timing both on the current machine.
// Trials are repeated from time to time, because a virtual machine may migrate. Each rank of a
// group has a TimedChoice. All ranks make the same calls and exchange their times, so all choose
// alike. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "core/base/bytes.h"
#include "core/base/clock.h"

namespace hvd {

class TimedChoice {
 public:
  /// Satisfied after `calls` calls, or after `least` calls that have moved at least `bytes`.
  struct Enough {
    size_t calls, least, bytes;
  };
  /// Calls of each algorithm that are not timed. They bring the caches into the state that this
  /// algorithm leaves, e.g. by a full turn through its ring. Tuned by measurement, see
  /// docs/decisions/0027.
  static constexpr Enough kSettling{.calls = 32, .least = 2, .bytes = 8 * MiB};
  static constexpr Enough kTimed{.calls = 8, .least = 4, .bytes = 16 * MiB};  ///< timed calls
  static constexpr size_t kMostTrials = kSettling.calls + kTimed.calls;       ///< per algorithm
  static constexpr size_t kKept = 4000;  ///< calls before both are tried again

  /// Total time of the timed calls of each algorithm. Single calls are not comparable: a rank that
  /// runs ahead in one call waits in the next.
  struct Times {
    Duration first{};
    Duration second{};
  };

  /// Whether the next call uses the second algorithm.
  bool takes_second() const { return is_trying() ? first_.is_over() : second_is_faster_; }
  /// Whether calls are trials: the caller then times each call and calls took() after it, otherwise
  /// passed().
  bool is_trying() const { return !second_.is_over(); }
  /// Records the time of a trial call of `bytes` on this rank. Returns true after the last trial:
  /// the ranks must then exchange times() and call decide().
  bool took(Duration time, size_t bytes) {
    (takes_second() ? second_ : first_).took(time, bytes);
    return !is_trying();
  }
  void passed() {
    if (++kept_ == kKept) *this = TimedChoice();
  }

  Times times() const { return {first_.time, second_.time}; }
  /// Decides from the times of all ranks, equal on all ranks. Compares the time per byte of the
  /// rank that waited least for the others.
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

  /// Trial calls of one algorithm; equal on all ranks except for the time.
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
