#include "core/group/segment_layout.h"

#include <algorithm>
#include <bit>

#include "core/base/assert.h"
#include "core/group/doorbells.h"
#include "core/group/eager_buffers.h"
#include "core/transport/ring.h"

namespace hvd {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kHeaderBytes = kPage;

// The minimum of the staging knob: a unit has room for an element of every type from every rank.
static_assert(64 * KiB / SegmentLayout::kSlots / SegmentLayout::kMaxLocalRanks >= sizeof(double));

constexpr size_t whole_pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace

SegmentLayout SegmentLayout::of(int local_ranks, size_t staging_bytes, size_t ring_bytes) {
  HVD_ASSERT(local_ranks >= 1);
  HVD_ASSERT(static_cast<uint32_t>(local_ranks) <= kMaxLocalRanks);
  SegmentLayout layout;
  layout.local_ranks = static_cast<uint32_t>(local_ranks);
  layout.unit_bytes = std::max(staging_bytes / kSlots / kPage * kPage, kPage);
  layout.ring_bytes = std::bit_ceil(std::max(ring_bytes, kPage));
  return layout;
}

SegmentLayout SegmentLayout::with_eager_buffers() const {
  SegmentLayout layout = *this;
  if (local_ranks > static_cast<uint32_t>(EagerBuffers::kMostRanks)) return layout;
  const size_t share = kEagerBytesOfAll / local_ranks / kCacheLine * kCacheLine;
  layout.eager_bytes = std::min(share, EagerBuffers::kMostBytes);
  const size_t fair = kEagerRingBytesOfAll / local_ranks / kCacheLine * kCacheLine;
  layout.eager_ring_bytes =
      std::max(std::min(kEagerRingBytes, fair), EagerBuffers::least_ring_bytes(layout.eager_bytes));
  return layout;
}

size_t SegmentLayout::state_offset(int local_rank) const {
  return kHeaderBytes + static_cast<size_t>(local_rank) * sizeof(RankState);
}

size_t SegmentLayout::ring_to_leader_offset(int local_rank) const {
  return whole_pages(state_offset(static_cast<int>(local_ranks))) +
         static_cast<size_t>(local_rank) * 2 * ring_memory_bytes(ring_bytes);
}

size_t SegmentLayout::ring_from_leader_offset(int local_rank) const {
  return ring_to_leader_offset(local_rank) + ring_memory_bytes(ring_bytes);
}

size_t SegmentLayout::eager_offset(int local_rank) const {
  const size_t area = eager_bytes == 0 ? 0 : EagerBuffers::area_bytes(eager_ring_bytes);
  return whole_pages(ring_to_leader_offset(static_cast<int>(local_ranks))) +
         static_cast<size_t>(local_rank) * area;
}

size_t SegmentLayout::staging_offset(int local_rank) const {
  return whole_pages(eager_offset(static_cast<int>(local_ranks))) +
         static_cast<size_t>(local_rank) * staging_bytes();
}

}  // namespace hvd
