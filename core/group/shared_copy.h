// Copies into memory that other cores read, by plain stores, which leave the data in a cache, or by
// non-temporal stores. Belongs to the HostSegment.
//
// To store into a cache line that another core holds, a core must first take ownership of it.
// Between cores that share a cache this is fast if the line has left their private caches, so
// staging and eager buffers cycle through more memory than those hold. Between chiplets or sockets
// it is always slow. Non-temporal stores need no ownership and are faster there, although the
// reader then fetches the data from memory. Measurements: docs/decisions/0025.
#pragma once

#include <cstddef>

#include "core/base/bytes.h"
#include "core/base/clock.h"

namespace hvd {

/// Chooses between plain and non-temporal stores by measuring copies where the process currently
/// runs. It starts with plain stores and switches to non-temporal stores after several consecutive
/// slow copies. From time to time it tries plain stores again. If non-temporal stores are not
/// faster, the distance between the cores is not the cause, and plain stores stay in use for
/// longer. The choice is local to this rank.
class StoreChoice {
 public:
  static constexpr double kSlowBytesPerNs =
      4;  ///< threshold between transfers across chiplets and within one
  static constexpr int kSuspicions = 4;  ///< consecutive; a single one may be an interrupt
  /// Bytes that are not judged after a change: at first, memory is touched for the first time or
  /// was written by non-temporal stores.
  static constexpr size_t kSettlingBytes = 512 * KiB;
  static constexpr size_t kTrialBytes =
      128 * MiB;  ///< before the other kind of store is tried again
  /// Upper limit for the count of one copy, so that a few large copies do not end a trial.
  static constexpr size_t kMostCounted = 256 * KiB;

  bool streams() const { return streams_; }
  /// Reports that `bytes` were stored as streams() says in `time`. Not every copy must be reported.
  void took(size_t bytes, Duration time);

 private:
  void change(bool streams, size_t settling_bytes);

  bool streams_ = false;
  size_t settling_bytes_ = kSettlingBytes;
  double slow_ = kSlowBytesPerNs;  ///< while streaming: the speed of plain stores
  size_t bytes_ = 0;               ///< since the last change
  int suspicions_ = 0;
};

/// Used by one thread. `clock` must outlive it.
class SharedCopy {
 public:
  static constexpr size_t kLeastStreamed = 2 * KiB;  ///< shorter copies use plain stores

  SharedCopy();  ///< uses the system clock
  explicit SharedCopy(const Clock& clock) : clock_(clock) {}

  /// Like memcpy. Peers see the data with any later store of this thread.
  void copy(std::byte* to, const std::byte* from, size_t bytes);
  bool streams() const { return choice_.streams(); }

 private:
  void store(std::byte* to, const std::byte* from, size_t bytes) const;

  const Clock& clock_;
  StoreChoice choice_;
  unsigned copies_ = 0;
};

}  // namespace hvd
