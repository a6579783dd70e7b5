#include "core/collective/schedule.h"

#include <algorithm>
#include <bit>
#include <iterator>

#include "core/base/assert.h"

namespace hvd {
namespace {

void check(int rank, int size) { HVD_ASSERT(size > 0 && rank >= 0 && rank < size); }

ChunkRange one(int chunk) { return {chunk, 1}; }

/// Calls `visit(peer)` for all other ranks, starting after this one, so that not all ranks access
/// rank 0 first.
template <class Visit>
void for_each_peer(int rank, int size, Visit visit) {
  for (int distance = 1; distance < size; ++distance) visit((rank + distance) % size);
}

/// Chunk numbers on a ring, counted backwards from this rank.
struct Ring {
  int rank;
  int size;
  int next() const { return (rank + 1) % size; }
  int previous() const { return (rank + size - 1) % size; }
  ChunkRange behind(int distance) const { return one((rank - distance + 2 * size) % size); }
};

/// Adds size - 1 phases: each rank sends on the chunk that it received last, starting with the
/// chunk `lead` ahead of it.
void pass_round(Schedule& schedule, const Ring& ring, int lead, Merge merge) {
  for (int i = 0; i < ring.size - 1; ++i) {
    const ChunkRange out = ring.behind(i - lead), in = ring.behind(i + 1 - lead);
    const int contributions = merge == Merge::reduce ? i + 1 : 1;
    schedule.phases.push_back(
        {{{ring.next(), out, out.first}}, {{ring.previous(), in, merge, in.first, contributions}}});
  }
}

/// Handles ranks beyond the largest power of two: each sends its content to a rank of that core
/// before, and receives the result from it after.
struct Fold {
  int size;
  int core;
  bool away;  ///< this rank is beyond the core
  bool host;  ///< a rank beyond the core sends to this one
  int partner;

  Fold(int rank, int size)
      : size(size),
        core(static_cast<int>(std::bit_floor(static_cast<unsigned>(size)))),
        away(rank >= core),
        host(rank + core < size),
        partner(away ? rank - core : rank + core),
        needed_(core < size) {}

  void in(Schedule& schedule, ChunkRange all) const {
    if (!needed_) return;
    Phase& phase = schedule.phases.emplace_back();
    if (away) phase.sends.push_back({partner, all});
    if (host) phase.receives.push_back({partner, all, Merge::reduce});
  }
  /// Returns how many contributions `rank` has reduced after the exchange among its aligned block
  /// of `count` ranks (a power of two).
  int contributions(int rank, int count) const {
    const int first = rank / count * count;
    return count + std::clamp(size - core - first, 0, count);
  }
  void out(Schedule& schedule, ChunkRange all) const {
    if (!needed_) return;
    Phase& phase = schedule.phases.emplace_back();
    if (host) phase.sends.push_back({partner, all});
    if (away) phase.receives.push_back({partner, all, Merge::replace});
  }

 private:
  bool needed_;
};

/// Returns the aligned block of `count` chunks (a power of two) that contains the chunk of rank
/// `of`.
ChunkRange aligned(int of, int count) { return {of / count * count, count}; }

/// Returns `rank` with the log2(core) low bits reversed; `core` is a power of two.
int mirrored(int rank, int core) {
  int result = 0;
  for (int bit = 1; bit < core; bit *= 2) result = 2 * result + ((rank & bit) != 0 ? 1 : 0);
  return result;
}

/// Adds the phases of an allgather by recursive doubling: each of `core` ranks (a power of two)
/// starts with its own chunk. Ranks beyond are idle.
void gather_by_doubling(Schedule& schedule, int rank, int core) {
  for (int distance = 1; distance < core; distance *= 2) {
    Phase& phase = schedule.phases.emplace_back();
    if (rank >= core) continue;
    const ChunkRange out = aligned(rank, distance), in = aligned(rank ^ distance, distance);
    phase.sends.push_back({rank ^ distance, out, out.first});
    phase.receives.push_back({rank ^ distance, in, Merge::replace, in.first});
  }
}

}  // namespace

Schedule direct_allreduce(int rank, int size) {
  check(rank, size);
  Schedule schedule = direct_reducescatter(rank, size);
  for (Phase& collect : direct_allgather(rank, size).phases)
    schedule.phases.push_back(std::move(collect));
  return schedule;
}

Schedule one_shot_allreduce(int rank, int size) {
  check(rank, size);
  Schedule schedule{.algorithm = Algorithm::one_shot};
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
  Schedule schedule{.algorithm = Algorithm::ring, .chunks = size};
  pass_round(schedule, ring, 0,
             Merge::reduce);  // afterwards, the chunk ahead of this rank is complete
  pass_round(schedule, ring, 1, Merge::replace);  // circulate the complete chunks
  return schedule;
}

Schedule recursive_doubling_allreduce(int rank, int size) {
  check(rank, size);
  const Fold fold(rank, size);
  Schedule schedule{.algorithm = Algorithm::recursive_doubling};
  fold.in(schedule, one(0));
  for (int distance = 1; distance < fold.core; distance *= 2) {
    Phase& phase = schedule.phases.emplace_back();
    if (fold.away) continue;
    const int partner = rank ^ distance;
    phase.sends.push_back({partner, one(0)});
    phase.receives.push_back(
        {partner, one(0), Merge::reduce, 0, fold.contributions(partner, distance)});
  }
  fold.out(schedule, one(0));
  return schedule;
}

Schedule folded_allreduce(int rank, int size, int together) {
  check(rank, size);
  HVD_ASSERT(together > 0 && size % together == 0);
  const int first = rank / together * together;
  Phase in, out;
  if (rank == first) {
    for (int other = first + 1; other < first + together; ++other) {
      in.receives.push_back({other, one(0), Merge::reduce});
      out.sends.push_back({other, one(0)});
    }
  } else {
    in.sends.push_back({first, one(0)});
    out.receives.push_back({first, one(0), Merge::replace});
  }
  Schedule schedule{.algorithm = Algorithm::folded, .phases = {std::move(in)}};
  Schedule among_first = recursive_doubling_allreduce(rank / together, size / together);
  for (Phase& phase : among_first.phases) {
    if (rank != first) phase = {};
    for (Send& send : phase.sends) send.peer *= together;
    for (Receive& receive : phase.receives) {
      receive.peer *= together;
      receive.contributions *= together;
    }
    schedule.phases.push_back(std::move(phase));
  }
  schedule.phases.push_back(std::move(out));
  return schedule;
}

Schedule halving_doubling_allreduce(int rank, int size) {
  check(rank, size);
  const Fold fold(rank, size);
  Schedule schedule{
      .algorithm = Algorithm::halving_doubling, .chunks = fold.core, .room_chunks = fold.core};
  const ChunkRange all{0, fold.core};
  std::vector<Phase> doubling;
  fold.in(schedule, all);
  for (int distance = 1; distance < fold.core; distance *= 2) {
    Phase& halve = schedule.phases.emplace_back();
    Phase& twice = doubling.emplace_back();
    if (fold.away) continue;
    const int partner = rank ^ distance, count = fold.core / (2 * distance);
    const ChunkRange ours = aligned(mirrored(rank, fold.core), count);
    const ChunkRange theirs = aligned(mirrored(partner, fold.core), count);
    halve.sends.push_back({partner, theirs});
    halve.receives.push_back(
        {partner, ours, Merge::reduce, 0, fold.contributions(partner, distance)});
    twice.sends.push_back({partner, ours, ours.first});
    twice.receives.push_back({partner, theirs, Merge::replace, theirs.first});
  }
  std::ranges::reverse_copy(doubling, std::back_inserter(schedule.phases));
  fold.out(schedule, all);
  return schedule;
}

Schedule tree_allreduce(int rank, int size) {
  check(rank, size);
  Schedule schedule = binomial_broadcast(rank, size, 0);
  schedule.algorithm = Algorithm::tree;
  std::vector<Phase> down = std::move(schedule.phases);
  schedule.phases.clear();
  for (size_t level = down.size(); level-- > 0;) {  // the same edges, upwards
    const int apart = 2 << level;                   // the ranks below a sender, from itself on
    Phase& up = schedule.phases.emplace_back();
    for (const Receive& receive : down[level].receives) up.sends.push_back({receive.peer, one(0)});
    for (const Send& send : down[level].sends)
      up.receives.push_back(
          {send.peer, one(0), Merge::reduce, 0, (size - 1 - send.peer) / apart + 1});
  }
  for (Phase& phase : down) schedule.phases.push_back(std::move(phase));
  return schedule;
}

Schedule parameter_server_allreduce(int rank, int size) {
  check(rank, size);
  Schedule schedule{.algorithm = Algorithm::parameter_server};
  if (size == 1) return schedule;
  Phase collect;
  if (rank == 0)
    for_each_peer(rank, size, [&](int peer) {
      collect.receives.push_back({peer, one(0), Merge::reduce});
    });
  else
    collect.sends.push_back({0, one(0)});
  schedule.phases = std::move(direct_broadcast(rank, size, 0).phases);
  schedule.phases.insert(schedule.phases.begin(), std::move(collect));
  return schedule;
}

Schedule direct_allgather(int rank, int size) {
  check(rank, size);
  Schedule schedule{.algorithm = Algorithm::direct, .chunks = size};
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
  Schedule schedule{.algorithm = Algorithm::ring, .chunks = size};
  pass_round(schedule, Ring{rank, size}, 0, Merge::replace);
  return schedule;
}

Schedule recursive_doubling_allgather(int rank, int size) {
  check(rank, size);
  HVD_ASSERT(std::has_single_bit(static_cast<unsigned>(size)));
  Schedule schedule{.algorithm = Algorithm::recursive_doubling, .chunks = size};
  gather_by_doubling(schedule, rank, size);
  schedule.room_chunks = std::max(1, size / 2);
  return schedule;
}

Schedule direct_reducescatter(int rank, int size) {
  check(rank, size);
  Schedule schedule{.algorithm = Algorithm::direct, .chunks = size, .room_chunks = size};
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
  Schedule schedule{.algorithm = Algorithm::direct, .chunks = size * size, .room_chunks = size};
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
  Schedule schedule{.algorithm = Algorithm::direct};
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
  const int place = (rank - root + size) % size;  // the root has place 0
  const auto rank_at = [&](int other) { return (other + root) % size; };
  Schedule schedule{.algorithm = Algorithm::binomial};
  for (int have = 1; have < size; have *= 2) {  // places below `have` hold the content
    Phase& phase = schedule.phases.emplace_back();
    if (place < have && place + have < size) phase.sends.push_back({rank_at(place + have), one(0)});
    if (place >= have && place < 2 * have)
      phase.receives.push_back({rank_at(place - have), one(0), Merge::replace});
  }
  return schedule;
}

Schedule chain_broadcast(int rank, int size, int root) {
  check(rank, size);
  check(root, size);
  // The executor has several segments under way. That keeps the ranks of a short chain busy.
  constexpr int kShort = 5;
  const int place = (rank - root + size) % size;  // the root has place 0
  Schedule schedule{.algorithm = Algorithm::ring, .chunks = size <= kShort ? 1 : size};
  for (int step = 0; step < schedule.chunks + size - 2; ++step) {
    Phase& phase = schedule.phases.emplace_back();
    const int out = step - place, in = out + 1;  // chunks
    if (place < size - 1 && out >= 0 && out < schedule.chunks)
      phase.sends.push_back({(rank + 1) % size, one(out), out});
    if (place > 0 && in >= 0 && in < schedule.chunks)
      phase.receives.push_back({(rank + size - 1) % size, one(in), Merge::replace, in});
  }
  return schedule;
}

}  // namespace hvd
