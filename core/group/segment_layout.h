// The layout of the memory shared by the ranks of one host. A value, equal on all ranks.
#pragma once

#include <cstdint>

#include "core/base/bytes.h"

namespace hvd {

struct SegmentLayout {
  static constexpr uint32_t kMaxLocalRanks = 1024;
  static constexpr uint32_t kSlots = 8;
  /// Total size of the largest messages in the EagerBuffers of all ranks, since each rank reads the
  /// messages of all.
  static constexpr size_t kEagerBytesOfAll = 2 * MiB;
  static constexpr size_t kEagerRingBytes = 2 * MiB;  ///< per rank, for few ranks
  static constexpr size_t kEagerRingBytesOfAll =
      64 * MiB;  ///< upper limit of the total, for many ranks

  uint32_t local_ranks = 1;
  uint32_t slots = kSlots;        ///< twice the units in flight
  uint64_t unit_bytes = 0;        ///< a multiple of a page
  uint64_t ring_bytes = 0;        ///< a power of two
  uint64_t eager_bytes = 0;       ///< maximum message size in EagerBuffers; 0: no EagerBuffers
  uint64_t eager_ring_bytes = 0;  ///< EagerBuffers::Sizes::ring_bytes
  bool operator==(const SegmentLayout&) const = default;

  /// Uses at most `staging_bytes` per rank, but at least one page per unit; each control ring holds
  /// at least `ring_bytes`. A unit should be small enough to be still cached when the peer reads
  /// it, and large enough to amortize synchronization. There should be enough slots that the lines
  /// of a slot have left the private caches before the slot is reused (shared_copy.h). Tuned by
  /// measurement, see docs/decisions/0025.
  static SegmentLayout of(int local_ranks, size_t staging_bytes, size_t ring_bytes);
  /// Returns this layout with EagerBuffers added, unless there are more than
  /// EagerBuffers::kMostRanks ranks.
  SegmentLayout with_eager_buffers() const;

  size_t state_offset(int local_rank) const;
  /// The ring from a rank to its host's leader (local rank 0), and the ring in the opposite
  /// direction.
  size_t ring_to_leader_offset(int local_rank) const;
  size_t ring_from_leader_offset(int local_rank) const;
  size_t eager_offset(int local_rank) const;
  size_t staging_offset(int local_rank) const;
  size_t staging_bytes() const { return slots * unit_bytes; }
  size_t total_bytes() const { return staging_offset(static_cast<int>(local_ranks)); }
};

}  // namespace hvd
