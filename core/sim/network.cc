#include "core/sim/network.h"

#include <algorithm>
#include <utility>

#include "core/base/assert.h"

namespace hvd::sim {

/// The network as seen by one rank.
class Network::Port final : public Group {
 public:
  Port(Network& network, int rank) : network_(network), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(network_.ports_.size()); }
  bool shared_memory() const override { return network_.options_.shared_memory; }
  size_t unit_bytes() const override { return network_.options_.unit_bytes; }
  uint32_t units_in_flight() const override { return network_.options_.units_in_flight; }
  uint32_t units_to_overlap() const override { return network_.options_.units_to_overlap; }

  std::optional<MutableBytes> reserve(Ticket ticket, size_t bytes) override;
  void publish(Ticket ticket, std::span<const Parcel> parcels) override;
  std::optional<ConstBytes> view(Ticket ticket, const Parcel& from) override;
  void release(Ticket ticket) override;
  bool pump() override;

  bool has_released(Ticket ticket) const { return released_ && *released_ >= ticket; }

 private:
  static bool follows(const std::optional<Ticket>& last, Ticket ticket) {
    return !last || *last < ticket;
  }

  Network& network_;
  int rank_;
  std::optional<Ticket> published_;
  std::optional<Ticket> released_;
  uint32_t in_flight_ = 0;
};

std::optional<MutableBytes> Network::Port::reserve(Ticket ticket, size_t bytes) {
  network_.check_alive();
  HVD_ASSERT(follows(published_, ticket) && in_flight_ < units_in_flight());
  HVD_ASSERT(bytes > 0 && bytes <= unit_bytes());
  auto& rooms = network_.rooms_[rank_];
  const auto [at, is_new] = rooms.try_emplace(ticket);
  Room& room = at->second;
  if (is_new) room.refused_until = network_.now_ + network_.draw(network_.options_.longest_delay);
  if (network_.now_ < room.refused_until || rooms.size() > units_in_flight()) return std::nullopt;
  room.bytes.assign(bytes, std::byte{0xa5});
  return room.bytes;
}

void Network::Port::publish(Ticket ticket, std::span<const Parcel> parcels) {
  network_.check_alive();
  HVD_ASSERT(follows(published_, ticket) && in_flight_ < units_in_flight());
  published_ = ticket;
  ++in_flight_;
  if (parcels.empty()) return;
  Room& room = network_.rooms_[rank_].at(ticket);
  room.published = room.bytes;
  room.is_published = true;
  for (const Parcel& parcel : parcels) {
    HVD_ASSERT(parcel.peer >= 0 && parcel.peer < size() && parcel.peer != rank_);
    HVD_ASSERT(parcel.bytes > 0 && parcel.offset + parcel.bytes <= room.bytes.size());
    HVD_ASSERT(!network_.ports_[parcel.peer]->has_released(ticket));
    const uint64_t due = network_.now_ + network_.draw(network_.options_.longest_delay);
    room.deliveries.push_back({.parcel = parcel, .due = due});
  }
}

std::optional<ConstBytes> Network::Port::view(Ticket ticket, const Parcel& from) {
  network_.check_alive();
  HVD_ASSERT(from.peer >= 0 && from.peer < size() && from.peer != rank_ && from.bytes > 0);
  HVD_ASSERT(!has_released(ticket));
  auto& rooms = network_.rooms_[from.peer];
  const auto at = rooms.find(ticket);
  if (at == rooms.end() || !at->second.is_published) return std::nullopt;
  for (Delivery& delivery : at->second.deliveries) {
    if (delivery.parcel.peer != rank_ || delivery.parcel.offset != from.offset) continue;
    HVD_ASSERT(delivery.parcel.bytes == from.bytes);
    if (shared_memory()) delivery.arrived = network_.now_ >= delivery.due;
    if (!delivery.arrived) return std::nullopt;
    delivery.seen = true;
    return ConstBytes(at->second.published).subspan(from.offset, from.bytes);
  }
  HVD_ASSERT(false && "the peer has published this unit without such a parcel");
  return std::nullopt;
}

void Network::Port::release(Ticket ticket) {
  network_.check_alive();
  HVD_ASSERT(follows(released_, ticket) && published_ && *published_ >= ticket);
  released_ = ticket;
  --in_flight_;
  for (auto& rooms : network_.rooms_) {
    const auto at = rooms.find(ticket);
    if (at == rooms.end()) continue;
    for (Delivery& delivery : at->second.deliveries) {
      if (delivery.parcel.peer != rank_) continue;
      HVD_ASSERT(delivery.seen);
      delivery.done = true;
    }
  }
  for (int rank = 0; rank < size(); ++rank) network_.free_rooms(rank);
}

bool Network::Port::pump() {
  network_.check_alive();
  bool moved = false;
  for (auto& rooms : network_.rooms_)
    for (auto& [ticket, room] : rooms)
      for (Delivery& delivery : room.deliveries) {
        if (delivery.parcel.peer != rank_ || delivery.arrived || network_.now_ < delivery.due)
          continue;
        delivery.arrived = true;
        moved = true;
      }
  return moved;
}

struct Network::Runner {
  std::unique_ptr<Executor> executor;
  std::optional<Error> error;
  bool ended = false;
  std::optional<uint64_t> waiting_since;
};

Network::Network(int size, uint64_t seed, NetworkOptions options)
    : options_(options), random_(seed), rooms_(size) {
  for (int rank = 0; rank < size; ++rank) ports_.push_back(std::make_unique<Port>(*this, rank));
}

Network::~Network() = default;

Group& Network::group(int rank) { return *ports_[rank]; }

std::vector<std::optional<Error>> Network::run(std::vector<Work> works) {
  HVD_ASSERT(works.size() == ports_.size());
  std::vector<Runner> runners(works.size());
  for (size_t rank = 0; rank < works.size(); ++rank)
    runners[rank].executor = std::make_unique<Executor>(*ports_[rank], std::move(works[rank]));
  const auto running = [](const Runner& runner) { return !runner.ended; };
  while (std::ranges::any_of(runners, running)) {
    ++now_;
    lose_if_due(runners);
    step(runners);
    const auto stuck = [](const Runner& runner) { return runner.ended || runner.waiting_since; };
    if (std::ranges::any_of(runners, running) && std::ranges::all_of(runners, stuck))
      skip_to_next_event(runners);
  }
  std::vector<std::optional<Error>> outcomes;
  for (Runner& runner : runners) outcomes.push_back(std::move(runner.error));
  return outcomes;
}

/// Advances a random rank that has not ended by one step.
void Network::step(std::vector<Runner>& runners) {
  std::vector<size_t> ranks;
  for (size_t rank = 0; rank < runners.size(); ++rank)
    if (!runners[rank].ended) ranks.push_back(rank);
  if (ranks.empty()) return;
  const size_t rank = ranks[draw(ranks.size() - 1)];
  Runner& runner = runners[rank];
  try {
    const Progress progress = runner.executor->advance();
    record(now_ * 64 + rank * 4 + static_cast<uint64_t>(progress));
    runner.ended = progress == Progress::done;
    if (progress == Progress::waiting) {
      if (!runner.waiting_since) runner.waiting_since = now_;
      return;
    }
  } catch (const Error& error) {
    runner.error = error;
    runner.ended = true;
  }
  for (Runner& other : runners) other.waiting_since.reset();  // there was progress
}

void Network::skip_to_next_event(std::vector<Runner>& runners) {
  uint64_t since = now_;  // not all ranks have seen parcels that arrived later
  for (const Runner& runner : runners)
    if (!runner.ended) since = std::min(since, *runner.waiting_since);
  const auto event = next_event(since);
  if (!event) {
    std::string text = "nobody can go on:";
    for (size_t rank = 0; rank < runners.size(); ++rank)
      if (!runners[rank].ended)
        text += " rank " + std::to_string(rank) + " waits for " +
                runners[rank].executor->waiting_for() + ";";
    fail(Code::timed_out, text);
  }
  now_ = std::max(now_, *event);
  for (Runner& runner : runners) runner.waiting_since.reset();
}

std::optional<uint64_t> Network::next_event(uint64_t since) const {
  std::optional<uint64_t> next;
  const auto consider = [&](uint64_t time) {
    if (time > since && (!next || time < *next)) next = time;
  };
  if (lost_ == kNoRank && options_.lose_rank != kNoRank) consider(options_.lose_after);
  for (const auto& rooms : rooms_)
    for (const auto& [ticket, room] : rooms) {
      if (!room.is_published) consider(room.refused_until);
      for (const Delivery& delivery : room.deliveries) consider(delivery.due);
    }
  return next;
}

/// A lost rank stops. All others get the error at their next call.
void Network::lose_if_due(std::vector<Runner>& runners) {
  if (options_.lose_rank == kNoRank || lost_ != kNoRank || now_ < options_.lose_after) return;
  lost_ = options_.lose_rank;
  Runner& runner = runners[lost_];
  if (!runner.ended) runner.error = Error(Code::peer_lost, "this rank was lost", lost_);
  runner.ended = true;
}

void Network::check_alive() const {
  if (lost_ != kNoRank) fail(Code::peer_lost, "rank " + std::to_string(lost_) + " is lost", lost_);
}

void Network::free_rooms(int rank) {
  std::erase_if(rooms_[rank], [&](const auto& entry) {
    const auto& [ticket, room] = entry;
    if (!room.is_published || !ports_[rank]->has_released(ticket)) return false;
    if (!std::ranges::all_of(room.deliveries, &Delivery::done)) return false;
    HVD_ASSERT(room.bytes == room.published);  // written after it was published
    return true;
  });
}

void Network::record(uint64_t value) { fingerprint_ = (fingerprint_ ^ value) * 1099511628211U; }

}  // namespace hvd::sim
