#include "core/collective/schedule.h"

#include <bit>

#include "core/base/assert.h"

namespace hvd {
namespace {

void check(int rank, int size) { HVD_ASSERT(size > 0 && rank >= 0 && rank < size); }

ChunkRange one(int chunk) { return {chunk, 1}; }

/// Calls `visit(peer)` for all ranks but this one, beginning after it, so that not everybody turns
/// to rank 0 first.
template <class Visit>
void for_each_peer(int rank, int size, Visit visit) {
  for (int distance = 1; distance < size; ++distance) visit((rank + distance) % size);
}

/// Chunk numbers on a ring, from this rank backwards.
struct Ring {
  int rank;
  int size;
  int next() const { return (rank + 1) % size; }
  int previous() const { return (rank + size - 1) % size; }
  ChunkRange behind(int distance) const { return one((rank - distance + 2 * size) % size); }
};

/// size - 1 phases: each rank passes on what it got last, beginning with the chunk `lead` ahead of
/// it.
void pass_round(Schedule& schedule, const Ring& ring, int lead, Merge merge) {
  for (int i = 0; i < ring.size - 1; ++i) {
    const ChunkRange sent = ring.behind(i - lead);
    const ChunkRange received = ring.behind(i + 1 - lead);
    schedule.phases.push_back(
        {{{ring.next(), sent, sent.first}}, {{ring.previous(), received, merge, received.first}}});
  }
}

}  // namespace

Schedule direct_allreduce(int rank, int size) {
  check(rank, size);
  Schedule schedule{.chunks = size, .phases = {}};
  if (size == 1) return schedule;
  Phase reduce, collect;
  for_each_peer(rank, size, [&](int peer) {
    reduce.sends.push_back({peer, one(peer)});
    reduce.receives.push_back({peer, one(rank), Merge::reduce});
    collect.sends.push_back({peer, one(rank)});
    collect.receives.push_back({peer, one(peer), Merge::replace});
  });
  schedule.phases = {std::move(reduce), std::move(collect)};
  return schedule;
}

Schedule one_shot_allreduce(int rank, int size) {
  check(rank, size);
  Schedule schedule;
  if (size == 1) return schedule;
  Phase phase;
  for_each_peer(rank, size, [&](int peer) {
    phase.sends.push_back({peer, one(0)});
    phase.receives.push_back({peer, one(0), Merge::reduce});
  });
  schedule.phases = {std::move(phase)};
  return schedule;
}

Schedule ring_allreduce(int rank, int size) {
  check(rank, size);
  const Ring ring{rank, size};
  Schedule schedule{.chunks = size, .phases = {}};
  pass_round(schedule, ring, 0,
             Merge::reduce);  // after these, the chunk ahead of us is complete here
  pass_round(schedule, ring, 1, Merge::replace);  // pass the complete chunks round
  return schedule;
}

Schedule recursive_doubling_allreduce(int rank, int size) {
  check(rank, size);
  const int core = static_cast<int>(std::bit_floor(static_cast<unsigned>(size)));
  const bool folded = rank >= core;      // gives its content to a rank of the core, gets the result
  const bool host = rank + core < size;  // the rank of the core that does so for another
  const int partner = folded ? rank - core : rank + core;
  Schedule schedule;
  if (core < size) {
    Phase& fold = schedule.phases.emplace_back();
    if (folded) fold.sends.push_back({partner, one(0)});
    if (host) fold.receives.push_back({partner, one(0), Merge::reduce});
  }
  for (int distance = 1; distance < core; distance *= 2) {
    Phase& phase = schedule.phases.emplace_back();
    if (folded) continue;
    phase.sends.push_back({rank ^ distance, one(0)});
    phase.receives.push_back({rank ^ distance, one(0), Merge::reduce});
  }
  if (core < size) {
    Phase& unfold = schedule.phases.emplace_back();
    if (host) unfold.sends.push_back({partner, one(0)});
    if (folded) unfold.receives.push_back({partner, one(0), Merge::replace});
  }
  return schedule;
}

Schedule direct_allgather(int rank, int size) {
  check(rank, size);
  Schedule schedule{.chunks = size, .phases = {}};
  if (size == 1) return schedule;
  Phase phase;
  for_each_peer(rank, size, [&](int peer) {
    phase.sends.push_back({peer, one(rank), rank});
    phase.receives.push_back({peer, one(peer), Merge::replace, peer});
  });
  schedule.phases = {std::move(phase)};
  return schedule;
}

Schedule ring_allgather(int rank, int size) {
  check(rank, size);
  Schedule schedule{.chunks = size, .phases = {}};
  pass_round(schedule, Ring{rank, size}, 0, Merge::replace);
  return schedule;
}

Schedule direct_reducescatter(int rank, int size) {
  check(rank, size);
  Schedule schedule{.chunks = size, .phases = {}, .room_chunks = size};
  if (size == 1) return schedule;
  Phase phase;
  for_each_peer(rank, size, [&](int peer) {
    phase.sends.push_back({peer, one(peer)});
    phase.receives.push_back({peer, one(rank), Merge::reduce});
  });
  schedule.phases = {std::move(phase)};
  return schedule;
}

Schedule direct_alltoall(int rank, int size) {
  check(rank, size);
  Schedule schedule{.chunks = size * size, .phases = {}, .room_chunks = size};
  if (size == 1) return schedule;
  Phase phase;
  for_each_peer(rank, size, [&](int peer) {
    phase.sends.push_back({peer, one(rank * size + peer), rank * size});
    phase.receives.push_back({peer, one(peer * size + rank), Merge::replace, peer * size});
  });
  schedule.phases = {std::move(phase)};
  return schedule;
}

Schedule direct_broadcast(int rank, int size, int root) {
  check(rank, size);
  check(root, size);
  Schedule schedule;
  if (size == 1) return schedule;
  Phase phase;
  if (rank == root)
    for_each_peer(rank, size, [&](int peer) { phase.sends.push_back({peer, one(0)}); });
  else
    phase.receives.push_back({root, one(0), Merge::replace});
  schedule.phases = {std::move(phase)};
  return schedule;
}

Schedule binomial_broadcast(int rank, int size, int root) {
  check(rank, size);
  check(root, size);
  const int place = (rank - root + size) % size;  // the root is at place 0
  const auto rank_at = [&](int other) { return (other + root) % size; };
  Schedule schedule;
  for (int have = 1; have < size; have *= 2) {  // places below `have` hold the content
    Phase& phase = schedule.phases.emplace_back();
    if (place < have && place + have < size) phase.sends.push_back({rank_at(place + have), one(0)});
    if (place >= have && place < 2 * have)
      phase.receives.push_back({rank_at(place - have), one(0), Merge::replace});
  }
  return schedule;
}

}  // namespace hvd
