#include "core/group/link_group.h"

#include <algorithm>
#include <utility>

#include "core/base/assert.h"

namespace hvd {

LinkGroup::LinkGroup(Mesh& mesh, std::vector<int> members, int own)
    : mesh_(mesh), members_(std::move(members)) {
  const auto at = std::find(members_.begin(), members_.end(), own);
  HVD_ASSERT(at != members_.end());
  rank_ = static_cast<int>(at - members_.begin());
}

MutableBytes LinkGroup::room(Ticket ticket) const {
  return {rooms_.data() + slot_of(ticket) * Mesh::kUnitBytes, Mesh::kUnitBytes};
}

std::optional<MutableBytes> LinkGroup::reserve(Ticket ticket, size_t bytes) {
  HVD_ASSERT(bytes <= Mesh::kUnitBytes);
  auto& holder = reserved_[slot_of(ticket)];
  if (holder && *holder != ticket) return std::nullopt;  // this rank itself has not released it
  for (int i = 0; i < size(); ++i) {
    if (i != rank_ && mesh_.unsent_bytes(members_[i]) > kUnsentLimitBytes) return std::nullopt;
  }
  if (rooms_.size() == 0) rooms_ = AlignedBuffer(kUnitsInFlight * Mesh::kUnitBytes);
  holder = ticket;
  return room(ticket).first(bytes);
}

void LinkGroup::publish(Ticket ticket, std::span<const Parcel> parcels) {
  HVD_ASSERT(!published_ || *published_ < ticket);
  published_ = ticket;
  if (parcels.empty()) return;
  HVD_ASSERT(reserved_[slot_of(ticket)] == ticket);
  for (const Parcel& parcel : parcels) {
    HVD_ASSERT(parcel.offset + parcel.bytes <= Mesh::kUnitBytes);
    if (parcel.peer == rank_) continue;  // view() shows the room
    mesh_.send(members_[parcel.peer], ticket, parcel.offset,
               room(ticket).subspan(parcel.offset, parcel.bytes));
  }
}

std::optional<ConstBytes> LinkGroup::view(Ticket ticket, const Parcel& from) {
  if (from.peer != rank_) return mesh_.view(ticket, {members_[from.peer], from.offset, from.bytes});
  if (!published_ || *published_ < ticket) return std::nullopt;
  HVD_ASSERT(reserved_[slot_of(ticket)] == ticket);
  return room(ticket).subspan(from.offset, from.bytes);
}

void LinkGroup::release(Ticket ticket) {
  auto& holder = reserved_[slot_of(ticket)];
  if (holder == ticket) holder.reset();
  for (int i = 0; i < size(); ++i) {
    if (i != rank_) mesh_.release(members_[i], ticket);
  }
}

bool LinkGroup::pump() {
  bool moved = false;
  for (int i = 0; i < size(); ++i) {
    if (i != rank_) moved |= mesh_.pump(members_[i]);
  }
  moved |= mesh_.pump_unsent();
  return moved;
}

}  // namespace hvd
