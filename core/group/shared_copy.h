// How bytes get into memory that other cores read: by plain stores, which leave them in a cache, or
// past the caches. Belongs to the HostSegment.
//
// To store into a line that another core holds, a core must take it away from that one. Between
// cores that share a cache this is fast where the line has left their own caches, so that staging
// and eager slots go round in more memory than those hold. Between chiplets or sockets it is slow
// always, and a store past the caches, which asks nobody for the line, is faster, though the reader
// then has to fetch it from memory. Measured at np 2 on one chiplet of a Zen 4 and on two, one
// message of 64 KiB from input to result: plain stores 4.1 and 36 us, past the caches 7.9 and 7.2.
#pragma once

#include <cstddef>

#include "core/base/bytes.h"
#include "core/base/clock.h"

namespace hvd {

/// Which stores are the faster ones where this process runs now: it may be moved, so the answer may
/// change. Plain ones, until several in a row have been slower than any cache near by would be;
/// then past the caches, and now and then plain ones for a while, to see. Where past the caches is
/// no faster, what is slow is not the way between the cores, and plain ones are for longer. A
/// choice of this rank alone, which no other one needs to know.
class StoreChoice {
 public:
  static constexpr double kSlowBytesPerNs = 4;  ///< 2.3 between chiplets, 7 to 30 within one
  static constexpr int kSuspicions = 4;         ///< in a row; one alone may be an interrupt
  /// The first time round, lines come from elsewhere: memory is touched for the first time, or was
  /// stored past the caches.
  static constexpr size_t kSettlingBytes = 512 * KiB;
  static constexpr size_t kTrialBytes = 128 * MiB;  ///< until the other way gets a chance again
  /// A copy counts as at most so many bytes, so that a few huge ones do not end a trial.
  static constexpr size_t kMostCounted = 256 * KiB;

  bool streams() const { return streams_; }
  /// So many bytes were stored as streams() says, in this time. Not all need be told.
  void took(size_t bytes, Duration time);

 private:
  void change(bool streams, size_t settling_bytes);

  bool streams_ = false;
  size_t settling_bytes_ = kSettlingBytes;
  double slow_ = kSlowBytesPerNs;  ///< while streaming: what plain stores did
  size_t bytes_ = 0;               ///< since the last change
  int suspicions_ = 0;
};

/// Driven by one thread. `clock` outlives it.
class SharedCopy {
 public:
  static constexpr size_t kLeastStreamed = 2 * KiB;  ///< less is stored plainly

  SharedCopy();  ///< by the clock of the system
  explicit SharedCopy(const Clock& clock) : clock_(clock) {}

  /// As memcpy. Peers see it by whatever this thread stores afterwards.
  void copy(std::byte* to, const std::byte* from, size_t bytes);
  bool streams() const { return choice_.streams(); }

 private:
  void store(std::byte* to, const std::byte* from, size_t bytes) const;

  const Clock& clock_;
  StoreChoice choice_;
  unsigned copies_ = 0;
};

}  // namespace hvd
