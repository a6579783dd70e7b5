// Where everything lies in the memory that the ranks of one host share. A value, the same on all of
// them.
#pragma once

#include <cstdint>

#include "core/base/bytes.h"

namespace hvd {

struct SegmentLayout {
  static constexpr uint32_t kMaxLocalRanks = 1024;
  static constexpr uint32_t kSlots = 8;
  /// Of the largest messages in EagerSlots of all ranks together, since each reads what all post.
  static constexpr size_t kEagerBytesOfAll = 2 * MiB;
  static constexpr size_t kEagerRingBytes = 2 * MiB;        ///< a rank, for few ranks
  static constexpr size_t kEagerRingBytesOfAll = 64 * MiB;  ///< at most, for many

  uint32_t local_ranks = 1;
  uint32_t slots = kSlots;        ///< twice the units in flight
  uint64_t unit_bytes = 0;        ///< a multiple of a page
  uint64_t ring_bytes = 0;        ///< a power of two
  uint64_t eager_bytes = 0;       ///< of a message in EagerSlots; 0: there are none
  uint64_t eager_ring_bytes = 0;  ///< EagerSlots::Sizes::ring_bytes
  bool operator==(const SegmentLayout&) const = default;

  /// At most `staging_bytes` a rank, or a page a unit where that is more; each control ring holds
  /// at least `ring_bytes`. A unit is written by one core and read by another, so it should still
  /// be in a cache when it is read, and not be so short that they wait for each other all the time;
  /// but a slot should be written again only when its lines have left the caches that no other core
  /// reads (shared_copy.h). Measured on a Zen 4, with 4 slots of 256 KiB, 8 (the default) and 16:
  /// allreduce at np 2, 1 MiB 97, 65, 66 us, 4 MiB 570, 246, 277 us; np 4, 64 MiB 23, 18, 20 ms.
  static SegmentLayout of(int local_ranks, size_t staging_bytes, size_t ring_bytes);
  /// The same with EagerSlots, unless there are more than EagerSlots::kMostRanks.
  SegmentLayout with_eager_slots() const;

  size_t state_offset(int local_rank) const;
  /// The ring from a rank to its host's leader (local rank 0), and the one back.
  size_t ring_to_leader_offset(int local_rank) const;
  size_t ring_from_leader_offset(int local_rank) const;
  size_t eager_offset(int local_rank) const;
  size_t staging_offset(int local_rank) const;
  size_t staging_bytes() const { return slots * unit_bytes; }
  size_t total_bytes() const { return staging_offset(static_cast<int>(local_ranks)); }
};

}  // namespace hvd
