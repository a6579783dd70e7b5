#include "core/group/link_group.h"

#include <algorithm>
#include <utility>

#include "core/base/assert.h"

namespace hvd {

LinkGroup::LinkGroup(Mesh& mesh, std::vector<int> members, int own, MemberPlaces places)
    : mesh_(mesh), members_(std::move(members)), places_(places) {
  const auto at = std::find(members_.begin(), members_.end(), own);
  HVD_ASSERT(at != members_.end());
  rank_ = static_cast<int>(at - members_.begin());
  HVD_ASSERT(places.ranks_a_core > 0 && size() % places.ranks_a_core == 0);
}

MutableBytes LinkGroup::room(Ticket ticket) const {
  return {rooms_.data() + slot_of(ticket) * Mesh::kUnitBytes, Mesh::kUnitBytes};
}

std::optional<MutableBytes> LinkGroup::reserve(Ticket ticket, size_t bytes) {
  HVD_ASSERT(bytes <= Mesh::kUnitBytes);
  auto& holder = slots_[slot_of(ticket)].reserved;
  if (holder && *holder != ticket) return std::nullopt;  // not released by this rank
  if (!sent(ticket)) return std::nullopt;  // the buffer's previous content is not sent yet
  if (a_member_is_behind()) return std::nullopt;
  holder = ticket;
  if (bytes == 0) return MutableBytes{};
  if (rooms_.size() == 0) rooms_ = AlignedBuffer(kUnitsInFlight * Mesh::kUnitBytes);
  return room(ticket).first(bytes);
}

/// Returns whether a member has many unsent bytes queued.
bool LinkGroup::a_member_is_behind() const {
  if (mesh_.unsent().empty()) return false;
  for (int i = 0; i < size(); ++i)
    if (i != rank_ && mesh_.unsent_bytes(members_[i]) > kUnsentLimitBytes) return true;
  return false;
}

void LinkGroup::publish(Ticket ticket, std::span<const Parcel> parcels) {
  HVD_ASSERT(!published_ || *published_ < ticket);
  published_ = ticket;
  if (parcels.empty()) return;
  HVD_ASSERT(slots_[slot_of(ticket)].reserved == ticket);
  for (const Parcel& parcel : parcels) {
    HVD_ASSERT(parcel.offset + parcel.bytes <= Mesh::kUnitBytes);
    if (parcel.peer == rank_) continue;  // view() returns the own buffer
    const ConstBytes bytes =
        parcel.bytes > 0 ? room(ticket).subspan(parcel.offset, parcel.bytes) : MutableBytes{};
    mesh_.lend(members_[parcel.peer], ticket, parcel.offset, {&bytes, 1});
  }
  note_published(ticket);
}

void LinkGroup::publish_loans(Ticket ticket, std::span<const Loan> loans) {
  HVD_ASSERT(!published_ || *published_ < ticket);
  published_ = ticket;
  for (const Loan& loan : loans) {
    HVD_ASSERT(loan.parcel.peer != rank_);
    HVD_ASSERT(loan.parcel.offset + loan.parcel.bytes <= Mesh::kUnitBytes);
    mesh_.lend(members_[loan.parcel.peer], ticket, loan.parcel.offset, loan.pieces);
  }
  note_published(ticket);
}

void LinkGroup::note_published(Ticket ticket) {
  auto& queued = slots_[slot_of(ticket)].queued;
  queued.clear();
  if (mesh_.unsent().empty()) return;
  queued.assign(members_.size(), 0);
  for (int i = 0; i < size(); ++i) {
    if (i != rank_) queued[i] = mesh_.queued_bytes(members_[i]);
  }
}

/// If the slot has been reused, returns true only when the later ticket is sent as well.
bool LinkGroup::sent(Ticket ticket) const {
  const auto& queued = slots_[slot_of(ticket)].queued;
  for (size_t i = 0; i < queued.size(); ++i) {
    if (static_cast<int>(i) != rank_ && mesh_.sent_bytes(members_[i]) < queued[i]) return false;
  }
  return true;
}

void LinkGroup::land(Ticket ticket, const Parcel& from, MutableBytes target) {
  if (from.bytes < kLeastLandingBytes) return;
  mesh_.land(ticket, {members_[from.peer], from.offset, from.bytes},
             target.empty() ? arrival_room(ticket, from.bytes) : target);
}

MutableBytes LinkGroup::arrival_room(Ticket ticket, size_t bytes) {
  Slot& slot = slots_[slot_of(ticket)];
  if (slot.landings == slot.landed.size()) slot.landed.emplace_back();
  AlignedBuffer& room = slot.landed[slot.landings++];
  if (room.size() < bytes) room = AlignedBuffer(bytes);
  return MutableBytes(room.data(), bytes);
}

void LinkGroup::return_loans() {
  for (int i = 0; i < size(); ++i) {
    if (i != rank_) mesh_.return_loans(members_[i]);
  }
}

std::optional<ConstBytes> LinkGroup::view(Ticket ticket, const Parcel& from) {
  if (from.peer != rank_) {
    auto content = mesh_.view(ticket, {members_[from.peer], from.offset, from.bytes});
    if (!content) awaited_ = from.peer;
    return content;
  }
  if (!published_ || *published_ < ticket) return std::nullopt;
  HVD_ASSERT(slots_[slot_of(ticket)].reserved == ticket);
  return room(ticket).subspan(from.offset, from.bytes);
}

void LinkGroup::release(Ticket ticket) {
  Slot& slot = slots_[slot_of(ticket)];
  if (slot.reserved == ticket) slot.reserved.reset();
  slot.landings = 0;
  for (int i = 0; i < size(); ++i) {
    if (i != rank_) mesh_.release(members_[i], ticket);
  }
}

bool LinkGroup::pump() {
  const bool at_all = looks_++ % looks_a_round() == 0;
  bool moved = false;
  for (int i = 0; i < size(); ++i) {
    if (i != rank_ && (at_all || i == awaited_)) moved |= mesh_.pump(members_[i]);
  }
  moved |= mesh_.pump_unsent();
  return moved;
}

}  // namespace hvd
