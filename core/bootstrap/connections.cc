#include "core/bootstrap/connections.h"

#include <algorithm>
#include <utility>

#include "core/transport/channel_watch.h"
#include "core/transport/process_watch.h"

namespace hvd {

/// Calls `visit` with every channel and the tag of its set.
template <class Visit>
void Connections::for_each_channel(Visit visit) {
  for (size_t set = 0; set < sets_.size(); ++set)
    sets_[set]->for_each_channel([&](Channel& channel) { visit(channel, socket_tag(set)); });
}

Connections::Connections(Wiring& wiring, std::vector<ChannelSet*> sets)
    : wiring_(wiring), sets_(std::move(sets)) {
  for (const Wiring::Watched& peer : wiring_.local_peers)
    wiring_.waiter->watch(peer.process.get(), static_cast<uint64_t>(peer.rank));
  if (wiring_.launcher >= 0) wiring_.waiter->watch_end(wiring_.launcher, kLauncherTag);
}

void Connections::watch_sockets() {
  if (std::exchange(watches_sockets_, true)) return;
  for_each_channel([&](Channel& channel, uint64_t tag) { watch(*wiring_.waiter, channel, tag); });
}

void Connections::forget_sockets() {
  watches_sockets_ = false;
  for_each_channel(
      [&](Channel& channel, uint64_t) { unwatch(*wiring_.waiter, channel, channel.peer()); });
}

void Connections::set_asleep(bool asleep) {
  if (wiring_.segment) wiring_.segment->set_asleep(asleep);
  if (!asleep) return;
  watch_sockets();
  for_each_channel(
      [&](Channel& channel, uint64_t tag) { watch_before_sleep(*wiring_.waiter, channel, tag); });
}

Connections::News Connections::take_news() {
  News news;
  for (const uint64_t tag : ready_) {
    if (tag >= socket_tag(0)) {
      news.readable |= tag >> 32;
    } else if (tag == kLauncherTag) {
      wiring_.waiter->forget(wiring_.launcher);
      news.left_by_launcher = true;
    } else if (const int rank = static_cast<int>(tag); is_lost_with_its_process(rank)) {
      news.lost.push_back(rank);
    }
  }
  ready_.clear();
  return news;
}

/// The end of a process is reported once. A rank that has said goodbye is not lost.
bool Connections::is_lost_with_its_process(int rank) {
  auto& peers = wiring_.local_peers;
  const auto peer = std::ranges::find(peers, rank, &Wiring::Watched::rank);
  if (peer == peers.end()) return false;
  wiring_.waiter->forget(peer->process.get());
  const bool parted = wiring_.segment->said_goodbye(peer->local_rank);
  peers.erase(peer);
  return !parted;
}

/// A process that is no longer watched has ended.
bool Connections::has_ended(int local_rank) const {
  const auto& peers = wiring_.local_peers;
  const auto peer = std::ranges::find(peers, local_rank, &Wiring::Watched::local_rank);
  return peer == peers.end() || hvd::has_ended(peer->process);
}

void Connections::forget(int rank) {
  for_each_channel([&](Channel& channel, uint64_t) { unwatch(*wiring_.waiter, channel, rank); });
  for (ChannelSet* set : sets_) set->forget(rank);
}

void Connections::dismiss(int rank) {
  for_each_channel([&](Channel& channel, uint64_t) {
    if (channel.peer() == rank) channel.give_up(rank);
  });
  forget(rank);
}

bool Connections::pump() {
  bool moved = false;
  for (ChannelSet* set : sets_) moved |= set->pump();
  return moved;
}

bool Connections::has_unsent() const {
  return std::ranges::any_of(sets_, [](const ChannelSet* set) { return set->has_unsent(); });
}

void Connections::say_goodbye() {
  for (ChannelSet* set : sets_) set->say_goodbye();
  if (wiring_.segment) wiring_.segment->say_goodbye();
}

void Connections::give_up(int lost) {
  for (ChannelSet* set : sets_) set->give_up(lost);
  if (wiring_.segment) wiring_.segment->say_goodbye();
}

std::optional<Connections::Report> Connections::take_report() {
  const int lost = wiring_.segment ? wiring_.segment->reported_loss() : kNoRank;
  if (lost != kNoRank) return Report{lost};
  std::optional<Report> report;
  for_each_channel([&](Channel& channel, uint64_t) {
    const int reason = report ? kNoRank : channel.take_reason();
    if (reason != kNoRank) report = Report{reason, channel.peer()};
  });
  return report;
}

bool Connections::parted(bool after_loss) const {
  return std::ranges::all_of(sets_, [=](const ChannelSet* set) { return set->parted(after_loss); });
}

}  // namespace hvd
