#include "core/engine/control.h"

#include <algorithm>
#include <utility>

#include "core/base/assert.h"
#include "core/base/error.h"
#include "core/negotiate/wire.h"

namespace hvd {
namespace {

// The payload of a beat.
constexpr std::byte kAnswer{0};
constexpr std::byte kQuestion{1};

}  // namespace

Control::Control(Wiring& wiring, const NegotiateOptions& options)
    : rank_(wiring.identity.rank), client_(rank_, wiring.topology, options) {
  const int host = wiring.topology.host_of[static_cast<size_t>(rank_)];
  if (wiring.topology.is_leader(rank_)) {
    hub_ = std::make_unique<Hub>(host, wiring.topology, options);
    own_child_ = wiring.topology.child_towards(host, rank_);
  }
  if (wiring.parent) neighbours_.push_back({kParent, std::move(wiring.parent)});
  for (Wiring::Child& child : wiring.children)
    neighbours_.push_back({child.child, std::move(child.channel)});
}

void Control::batch_ended(GroupNumber group) {
  client_.batch_ended(group);
  if (root() != nullptr) hub_->root_rank_done(group);
}

void Control::lose(int rank, const std::string& why) {
  forget(rank);
  report_loss(rank, why);
}

void Control::lose_silent(int rank, const std::string& why) {
  report_loss(rank, why);
  forget(rank);
}

void Control::report_loss(int rank, const std::string& why) {
  if (!hub_) {
    Up up;
    up.lost = rank;
    up.lost_why = why;
    send_up(up);
    return client_.parent_lost(rank, why);
  }
  hub_->lost_child(rank, why);                                // up the tree, or to the local Root
  if (hub_->root() == nullptr) hub_->lost_parent(rank, why);  // down the tree at once
  exchange_at_home();
  speak();
}

void Control::forget(int rank) {
  for (Neighbour& neighbour : neighbours_) neighbour.gone |= neighbour.channel->peer() == rank;
}

void Control::tick(bool ages_requests) {
  if (ages_requests) client_.tick();
  if (hub_) hub_->tick();
}

// ---- signs of life
// ------------------------------------------------------------------------------

void Control::greet() {
  for (Neighbour& neighbour : neighbours_) neighbour.channel->send(FrameKind::beat, {kAnswer});
}

void Control::restart_beats() {
  for (Neighbour& neighbour : neighbours_) neighbour.pulse.restart();
}

std::vector<Quiet> Control::beat(bool pending) {
  std::vector<Quiet> quiet;
  const int asking = asking_;
  for (Neighbour& neighbour : neighbours_) {
    if (!neighbour.lives()) continue;
    Pulse& pulse = neighbour.pulse;
    const bool others_ask = asking > (pulse.is_asking() ? 1 : 0);
    const bool asks = pending || others_ask;
    pulse.pass(neighbour.channel->received_bytes(), asks);
    if (pulse.is_quiet()) quiet.push_back({neighbour.channel->peer(), pulse});
    if (asks) neighbour.channel->send(FrameKind::beat, {kQuestion});
  }
  count_asking();
  return quiet;
}

std::vector<int> Control::awaited() const {
  std::vector<int> ranks;
  for (const Neighbour& neighbour : neighbours_)
    if (neighbour.lives()) ranks.push_back(neighbour.channel->peer());
  return ranks;
}

void Control::hear_beat(Neighbour& neighbour, const Frame& frame) {
  if (frame.payload.front() != kQuestion) return;
  neighbour.pulse.was_asked();
  count_asking();
  if (!parting_) neighbour.channel->send(FrameKind::beat, {kAnswer});
}

void Control::count_asking() {
  asking_ = static_cast<int>(std::ranges::count_if(neighbours_, [](const Neighbour& neighbour) {
    return neighbour.lives() && neighbour.pulse.is_asking();
  }));
}

// ---- messages
// -----------------------------------------------------------------------------------

bool Control::pump() {
  bool moved = false;
  for (Neighbour& neighbour : neighbours_) moved |= read(neighbour);
  moved |= exchange_at_home();
  moved |= speak();
  return moved;
}

bool Control::read(Neighbour& neighbour) {
  if (neighbour.gone) return false;
  bool moved = neighbour.channel->pump();
  while (const std::optional<Frame> frame = neighbour.channel->receive()) {
    hear(neighbour, *frame);
    moved = true;
  }
  return moved;
}

void Control::hear(Neighbour& neighbour, const Frame& frame) {
  if (frame.kind == FrameKind::beat) return hear_beat(neighbour, frame);
  if (neighbour.child != kParent) return hear_child(neighbour.child, decode_up(frame.payload));
  for (const Verdict& verdict : decode_down(frame.payload)) hear_parent(verdict);
}

void Control::hear_parent(const Verdict& verdict) {
  if (verdict.type == Verdict::Type::abort && verdict.rank == rank_) why_given_up_ = verdict.text;
  if (hub_) {
    hub_->from_parent(verdict);
  } else {
    client_.from_parent(verdict);
  }
}

// A rank that its child has given up ends at once: it is cut off from the child already, and the
// Root may have ended, too.
void Control::hear_child(int child, const Up& up) {
  hub_->from_child(child, up);
  if (up.lost != rank_) return;
  why_given_up_ = up.lost_why;
  if (hub_->root() == nullptr) hub_->lost_parent(rank_, up.lost_why);
}

// The client of a leader and its hub exchange messages without a channel.
bool Control::exchange_at_home() {
  if (!hub_) return false;
  bool moved = false;
  if (client_.has_up()) {
    hub_->from_child(own_child_, client_.take_up());
    moved = true;
  }
  hub_->turn();
  if (!hub_->has_down()) return moved;
  for (const auto& [child, down] : hub_->take_down()) send(child, down);
  return true;
}

void Control::send(int child, const Down& down) {
  if (child == own_child_) {
    for (const Verdict& verdict : down) client_.from_parent(verdict);
    return;
  }
  Neighbour* neighbour = find(child);
  HVD_ASSERT(neighbour != nullptr);
  if (!neighbour->gone && !parting_) neighbour->channel->send(FrameKind::control, encode(down));
}

bool Control::speak() {
  const bool has_up = hub_ ? hub_->has_up() : client_.has_up();
  if (!has_up || find(kParent) == nullptr || parting_) return false;
  send_up(hub_ ? hub_->take_up() : client_.take_up());
  return true;
}

void Control::send_up(const Up& up) {
  Neighbour* parent = find(kParent);
  if (parent != nullptr && !parent->gone) parent->channel->send(FrameKind::control, encode(up));
}

bool Control::has_unsent() const {
  return std::any_of(neighbours_.begin(), neighbours_.end(), [](const Neighbour& neighbour) {
    return !neighbour.gone && neighbour.channel->unsent_bytes() > 0;
  });
}

void Control::say_goodbye() {
  parting_ = true;
  for (Neighbour& neighbour : neighbours_) {
    if (!neighbour.gone) neighbour.channel->send_goodbye();
  }
}

void Control::give_up(int lost) {
  parting_ = true;
  for (Neighbour& neighbour : neighbours_) {
    if (!neighbour.gone) neighbour.channel->give_up(lost);
  }
}

bool Control::parted(bool after_loss) const {
  return std::all_of(neighbours_.begin(), neighbours_.end(), [=](const Neighbour& neighbour) {
    if (neighbour.gone || neighbour.channel->has_given_up()) return true;
    const bool heard = after_loss || neighbour.channel->said_goodbye();
    return heard && neighbour.channel->unsent_bytes() == 0;
  });
}

Control::Neighbour* Control::find(int child) {
  const auto found = std::find_if(neighbours_.begin(), neighbours_.end(),
                                  [=](const Neighbour& n) { return n.child == child; });
  return found == neighbours_.end() ? nullptr : &*found;
}

}  // namespace hvd
