#include "core/group/shm_group.h"

#include <algorithm>
#include <utility>

#include "core/base/assert.h"

namespace hvd {

ShmGroup::ShmGroup(Staging& staging, std::vector<int> members, EagerBuffers* eager_buffers)
    : staging_(staging), eager_buffers_(eager_buffers), members_(std::move(members)) {
  const auto own = std::find(members_.begin(), members_.end(), staging_.local_rank());
  HVD_ASSERT(own != members_.end());
  rank_ = static_cast<int>(own - members_.begin());
}

std::optional<MutableBytes> ShmGroup::reserve(Ticket ticket, size_t bytes) {
  return staging_.reserve(ticket, bytes);
}

void ShmGroup::publish(Ticket ticket, std::span<const Parcel> parcels) {
  readers_.clear();
  for (const Parcel& parcel : parcels) {
    HVD_ASSERT(parcel.offset + parcel.bytes <= staging_.unit_bytes());
    readers_.push_back(members_[parcel.peer]);
  }
  staging_.publish(ticket, readers_);
}

std::optional<ConstBytes> ShmGroup::view(Ticket ticket, const Parcel& from) {
  HVD_ASSERT(from.offset + from.bytes <= staging_.unit_bytes());
  const auto slot = staging_.view(ticket, members_[from.peer]);
  if (!slot) return std::nullopt;
  return slot->subspan(from.offset, from.bytes);
}

void ShmGroup::release(Ticket ticket) { staging_.release(ticket, members_); }

}  // namespace hvd
