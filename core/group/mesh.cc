#include "core/group/mesh.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "core/base/assert.h"
#include "core/base/error.h"

namespace hvd {
namespace {

/// The wire format of the unit header.
struct UnitHeader {
  uint64_t batch = 0;
  uint64_t offset = 0;
  uint32_t unit = 0;
  std::array<uint32_t, 7> zero{};
};
static_assert(sizeof(UnitHeader) == kUnitHeaderBytes);

std::array<std::byte, kUnitHeaderBytes> unit_header(Ticket ticket, size_t offset) {
  return std::bit_cast<std::array<std::byte, kUnitHeaderBytes>>(
      UnitHeader{.batch = ticket.batch, .offset = offset, .unit = ticket.unit});
}

}  // namespace

void Mesh::add(std::unique_ptr<Channel> channel) {
  const int peer = channel->peer();
  HVD_ASSERT(peer >= 0 && !has(peer));
  const auto at = static_cast<size_t>(peer);
  if (at >= peers_.size()) peers_.resize(at + 1);
  peers_[at] = std::make_unique<Peer>(Peer{.channel = std::move(channel)});
}

std::vector<int> Mesh::peers() const {
  std::vector<int> ranks;
  for (const auto& peer : peers_)
    if (peer) ranks.push_back(peer->channel->peer());
  return ranks;
}

bool Mesh::pump(Peer& state) {
  if (state.is_gone) return false;
  const bool moved = state.channel->pump();
  heed_reason(state);
  while (takes_more(state)) {
    auto frame = state.channel->receive();
    if (!frame) break;
    park(state, *std::move(frame));
  }
  return moved;
}

void Mesh::heed_reason(Peer& state) const {
  if (!heeds_reasons_) return;
  const int peer = state.channel->peer();
  const int lost = state.channel->take_reason();
  if (lost == peer)
    fail(Code::peer_lost, fmt::format("rank {} has failed; its own error gives the reason", peer),
         peer);
  if (lost != kNoRank)
    fail(Code::peer_lost, fmt::format("rank {} is lost, as reported by rank {}", lost, peer), lost);
}

bool Mesh::pump_unsent() {
  bool moved = false;
  for (const int peer : unsent_)
    if (unsent_bytes(peer) > 0) moved |= pump(peer);
  std::erase_if(unsent_, [this](int peer) {
    Peer& state = find(peer);
    state.is_owed = state.channel->unsent_bytes() > 0;
    return !state.is_owed;
  });
  return moved;
}

bool Mesh::pump() {
  bool moved = false;
  for (const auto& peer : peers_)
    if (peer) moved |= pump(*peer);
  return moved;
}

void Mesh::forget(int rank) {
  if (has(rank)) find(rank).is_gone = true;
}

void Mesh::say_goodbye() {
  for_each_channel([](Channel& channel) { channel.send_goodbye(); });
}

void Mesh::give_up(int lost) {
  for_each_channel([=](Channel& channel) { channel.give_up(lost); });
}

bool Mesh::parted(bool after_loss) const {
  return std::ranges::all_of(peers_, [=](const auto& peer) {
    if (!peer || peer->is_gone || peer->channel->has_given_up()) return true;
    const bool heard = after_loss || peer->channel->said_goodbye();
    return heard && peer->channel->unsent_bytes() == 0;
  });
}

void Mesh::lend(int peer, Ticket ticket, size_t offset, std::span<const ConstBytes> pieces) {
  Peer& state = find(peer);
  state.channel->lend(FrameKind::data, unit_header(ticket, offset), pieces);
  if (state.is_owed || state.channel->unsent_bytes() == 0) return;
  state.is_owed = true;
  unsent_.push_back(peer);
}

void Mesh::land(Ticket ticket, const Parcel& from, MutableBytes target) {
  Peer& state = find(from.peer);
  if (view(ticket, from)) return;
  state.channel->land(unit_header(ticket, from.offset), target);
}

void Mesh::return_loans(int peer) {
  Peer& state = find(peer);
  state.channel->return_loans();
  for (Arrived& unit : state.parked) {
    const ConstBytes landed = std::exchange(unit.frame.landed, {});
    unit.frame.payload.insert(unit.frame.payload.end(), landed.begin(), landed.end());
  }
}

bool Mesh::takes_more(const Peer& state) {
  if (state.parked_bytes <= kParkedLimitBytes) return true;
  // The oldest unit must be complete before it can be released, however large its parcels are.
  return state.parked.front().ticket == state.parked.back().ticket;
}

void Mesh::park(Peer& state, Frame frame) {
  const int peer = state.channel->peer();
  const auto refuse = [peer](const std::string& what) {
    fail(Code::internal, fmt::format("rank {} sent {} over a data connection", peer, what), peer);
  };
  if (frame.kind != FrameKind::data) refuse("a control frame");
  if (frame.payload.size() < kUnitHeaderBytes) refuse("a frame that is too short");
  Reader reader(frame.payload);
  Arrived unit;
  unit.ticket.batch = reader.get<uint64_t>();
  unit.offset = reader.get<uint64_t>();
  unit.ticket.unit = reader.get<uint32_t>();
  const size_t bytes = frame.payload.size() - kUnitHeaderBytes + frame.landed.size();
  if (unit.offset > kUnitBytes || bytes > kUnitBytes - unit.offset) refuse("more than a unit");
  if (!state.parked.empty() && unit.ticket < state.parked.back().ticket)
    refuse("units in disorder");
  if (state.released && unit.ticket <= *state.released) return;  // already released, not needed
  unit.frame = std::move(frame);
  state.parked_bytes += bytes;
  state.parked.push_back(std::move(unit));
}

std::optional<ConstBytes> Mesh::view(Ticket ticket, const Parcel& from) const {
  for (const Arrived& unit : find(from.peer).parked) {
    if (unit.ticket > ticket) break;
    const bool holds = unit.ticket == ticket && unit.offset <= from.offset &&
                       from.offset + from.bytes <= unit.offset + unit.bytes().size();
    if (holds) return unit.bytes().subspan(from.offset - unit.offset, from.bytes);
  }
  return std::nullopt;
}

void Mesh::release(int peer, Ticket ticket) {
  Peer& state = find(peer);
  HVD_ASSERT(!state.released || *state.released < ticket);
  state.released = ticket;
  while (!state.parked.empty() && state.parked.front().ticket <= ticket) {
    state.parked_bytes -= state.parked.front().bytes().size();
    state.parked.pop_front();
  }
}

}  // namespace hvd
