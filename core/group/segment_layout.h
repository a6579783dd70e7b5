// Where everything lies in the memory that the ranks of one host share. A value, the same on all of
// them.
#pragma once

#include <cstdint>

#include "core/base/bytes.h"

namespace hvd {

struct SegmentLayout {
  static constexpr uint32_t kMaxLocalRanks = 1024;
  static constexpr uint32_t kSlots = 4;
  /// Of the largest messages in EagerSlots of all ranks together, since each reads what all post.
  static constexpr size_t kEagerBytesOfAll = 1 * MiB;

  uint32_t local_ranks = 1;
  uint32_t slots = kSlots;   ///< units in flight
  uint64_t unit_bytes = 0;   ///< a multiple of a page
  uint64_t ring_bytes = 0;   ///< a power of two
  uint64_t eager_bytes = 0;  ///< of a message in EagerSlots; 0: there are none
  bool operator==(const SegmentLayout&) const = default;

  /// At most `staging_bytes` a rank, or a page a unit where that is more; each control ring holds
  /// at least `ring_bytes`. A unit is written by one core and read by another, so it should still
  /// be in the cache when it is read, and not be so short that they wait for each other all the
  /// time. Measured with 256 KiB, 512 KiB, 1 MiB (the default) and 4 MiB: alltoall of 1 MiB at np 2
  /// takes 117, 104, 58 and 46 us; with the last two, allreduce of 64 MiB at np 4 19 and 54 ms,
  /// broadcast of 1 MiB at np 2 44 and 108 us.
  static SegmentLayout of(int local_ranks, size_t staging_bytes, size_t ring_bytes);
  /// The same with EagerSlots.
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
