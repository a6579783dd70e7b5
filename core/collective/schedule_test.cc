// Verifies every schedule for every rank of sizes 1 to 64 by executing all ranks' phases on symbols
// instead of data.
#include "core/collective/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

namespace hvd {
namespace {

constexpr int kLargestSize = 64;

/// The content of a chunk, as an expression over the ranks' contributions. Equal expressions give
/// equal numbers. Combining is commutative but not associative, like floating-point addition.
class Expressions {
 public:
  /// The contribution of one rank to any chunk.
  int leaf(int rank) {
    counts_.resize(std::max(counts_.size(), size_t{kLargestSize}));
    counts_[rank][rank] = 1;
    return rank;
  }
  int combine(int a, int b) {
    const auto [at, is_new] =
        numbers_.try_emplace(std::minmax(a, b), static_cast<int>(counts_.size()));
    if (is_new) {
      std::map<int, int> sum = counts_[a];
      for (const auto& [rank, count] : counts_[b]) sum[rank] += count;
      counts_.push_back(std::move(sum));
    }
    return at->second;
  }
  /// How often each rank's contribution occurs.
  const std::map<int, int>& counts(int expression) const { return counts_[expression]; }

 private:
  std::vector<std::map<int, int>> counts_;
  std::map<std::pair<int, int>, int> numbers_;
};

constexpr int kNothing = -1;

/// All ranks of a group, holding expressions.
class Machine {
 public:
  using Make = std::function<Schedule(int rank, int size)>;

  Machine(int size, const Make& make) {
    for (int rank = 0; rank < size; ++rank) {
      schedules_.push_back(make(rank, size));
      content_.emplace_back(schedules_.back().chunks, kNothing);
    }
  }

  int size() const { return static_cast<int>(schedules_.size()); }
  int chunks() const { return schedules_[0].chunks; }
  size_t phases() const { return schedules_[0].phases.size(); }
  int& content(int rank, int chunk) { return content_[rank][chunk]; }
  Expressions& expressions() { return expressions_; }
  const std::vector<Schedule>& schedules() const { return schedules_; }

  void run() {
    for (size_t phase = 0; phase < phases(); ++phase) {
      const auto before = content_;
      for (int rank = 0; rank < size(); ++rank)
        land(rank, schedules_[rank].phases[phase].receives, before);
    }
  }

  /// Replacing content must be final: the executor scales before it is sent.
  std::vector<int> replacements() const { return replacements_; }

 private:
  using Content = std::vector<std::vector<int>>;

  void land(int rank, std::vector<Receive> receives, const Content& before) {
    std::ranges::sort(receives, {}, &Receive::peer);
    std::map<int, std::vector<int>> reduced;  // [chunk] peers
    for (const Receive& receive : receives)
      for (int i = 0; i < receive.range.count; ++i) {
        const int chunk = receive.range.first + i;
        if (receive.merge == Merge::reduce) {
          reduced[chunk].push_back(receive.peer);
          EXPECT_EQ(receive.contributions, contributions(before[receive.peer][chunk]));
        } else {
          content_[rank][chunk] = before[receive.peer][chunk];
          replacements_.push_back(before[receive.peer][chunk]);
        }
      }
    for (auto& [chunk, ranks] : reduced) {
      ranks.push_back(rank);
      std::ranges::sort(ranks);
      int result = before[ranks[0]][chunk];
      for (size_t i = 1; i < ranks.size(); ++i)
        result = expressions_.combine(result, before[ranks[i]][chunk]);
      content_[rank][chunk] = result;
    }
  }

  int contributions(int expression) const {
    int all = 0;
    for (const auto& [rank, count] : expressions_.counts(expression)) all += count;
    return all;
  }

  std::vector<Schedule> schedules_;
  Content content_;
  Expressions expressions_;
  std::vector<int> replacements_;
};

using Step = std::tuple<size_t, int, int, int, int, int>;  // phase, from, to, first, count, base

/// Checks one phase of one rank: it fits the buffer that all ranks derive.
void expect_room(const Schedule& schedule, const Phase& phase) {
  for (const Send& send : phase.sends) {
    EXPECT_EQ(send.base, phase.sends[0].base);
    EXPECT_GE(send.base, 0);
    EXPECT_GE(send.range.first, send.base);
    EXPECT_LE(send.range.first + send.range.count - send.base, schedule.room_chunks);
  }
}

/// Checks that every send has a matching receive in the same phase, and vice versa.
void expect_pairs(const std::vector<Schedule>& schedules) {
  std::vector<Step> sent, received;
  for (int rank = 0; rank < static_cast<int>(schedules.size()); ++rank) {
    ASSERT_EQ(schedules[rank].phases.size(), schedules[0].phases.size());
    ASSERT_EQ(schedules[rank].chunks, schedules[0].chunks);
    ASSERT_EQ(schedules[rank].room_chunks, schedules[0].room_chunks);
    for (size_t phase = 0; phase < schedules[rank].phases.size(); ++phase) {
      const Phase& steps = schedules[rank].phases[phase];
      expect_room(schedules[rank], steps);
      for (const Send& send : steps.sends)
        sent.emplace_back(phase, rank, send.peer, send.range.first, send.range.count, send.base);
      for (const Receive& receive : steps.receives)
        received.emplace_back(phase, receive.peer, rank, receive.range.first, receive.range.count,
                              receive.base);
    }
  }
  for (const auto& [phase, from, to, first, count, base] : sent) {
    EXPECT_NE(from, to);
    EXPECT_GE(first, 0);
    EXPECT_GT(count, 0);
    EXPECT_LE(first + count, schedules[0].chunks);
  }
  std::ranges::sort(sent);
  std::ranges::sort(received);
  EXPECT_EQ(sent, received);
  EXPECT_TRUE(std::ranges::adjacent_find(sent) == sent.end()) << "the same is sent twice";
}

/// Checks that in one phase a chunk is either replaced once or reduced, not both.
void expect_one_change_a_phase(const std::vector<Schedule>& schedules) {
  for (const Schedule& schedule : schedules)
    for (const Phase& phase : schedule.phases) {
      std::map<int, int> replaced, reduced;
      for (const Receive& receive : phase.receives)
        for (int i = 0; i < receive.range.count; ++i)
          ++(receive.merge == Merge::replace ? replaced : reduced)[receive.range.first + i];
      for (const auto& [chunk, count] : replaced) {
        EXPECT_EQ(count, 1);
        EXPECT_FALSE(reduced.contains(chunk));
      }
    }
}

struct Named {
  const char* name;
  Machine::Make make;
  bool needs_power_of_two = false;

  bool is_for(int size) const {
    return !needs_power_of_two || std::has_single_bit(static_cast<unsigned>(size));
  }
};

class AllreduceSchedule : public testing::TestWithParam<Named> {};

TEST_P(AllreduceSchedule, CombinesEveryContributionOnceAndAlikeOnAllRanks) {
  for (int size = 1; size <= kLargestSize; ++size) {
    SCOPED_TRACE(size);
    Machine machine(size, GetParam().make);
    expect_pairs(machine.schedules());
    expect_one_change_a_phase(machine.schedules());
    for (int rank = 0; rank < size; ++rank)
      for (int chunk = 0; chunk < machine.chunks(); ++chunk)
        machine.content(rank, chunk) = machine.expressions().leaf(rank);
    machine.run();
    std::map<int, int> each_once;
    for (int rank = 0; rank < size; ++rank) each_once[rank] = 1;
    for (int chunk = 0; chunk < machine.chunks(); ++chunk) {
      EXPECT_EQ(machine.expressions().counts(machine.content(0, chunk)), each_once);
      for (int rank = 0; rank < size; ++rank)
        ASSERT_EQ(machine.content(rank, chunk), machine.content(0, chunk)) << "rank " << rank;
    }
    for (const int content : machine.replacements())
      ASSERT_EQ(machine.expressions().counts(content), each_once);
  }
}

Schedule folded_by_two(int rank, int size) {
  return folded_allreduce(rank, size, size % 2 == 0 ? 2 : size);
}
Schedule folded_into_two(int rank, int size) {
  return folded_allreduce(rank, size, size % 2 == 0 ? size / 2 : 1);
}

INSTANTIATE_TEST_SUITE_P(All, AllreduceSchedule,
                         testing::Values(Named{"direct", direct_allreduce},
                                         Named{"one_shot", one_shot_allreduce},
                                         Named{"ring", ring_allreduce},
                                         Named{"recursive_doubling", recursive_doubling_allreduce},
                                         Named{"halving_doubling", halving_doubling_allreduce},
                                         Named{"folded_by_two", folded_by_two},
                                         Named{"folded_into_two", folded_into_two},
                                         Named{"tree", tree_allreduce},
                                         Named{"parameter_server", parameter_server_allreduce}),
                         [](const auto& info) { return info.param.name; });

TEST(AllreduceOrder, DirectOneShotAndParameterServerCombineInAscendingOrderOfRank) {
  for (const auto& make : {direct_allreduce, one_shot_allreduce, parameter_server_allreduce})
    for (int size = 1; size <= kLargestSize; ++size) {
      Machine machine(size, make);
      for (int rank = 0; rank < size; ++rank)
        for (int chunk = 0; chunk < machine.chunks(); ++chunk)
          machine.content(rank, chunk) = machine.expressions().leaf(rank);
      machine.run();
      int expected = machine.expressions().leaf(0);
      for (int rank = 1; rank < size; ++rank)
        expected = machine.expressions().combine(expected, machine.expressions().leaf(rank));
      for (int chunk = 0; chunk < machine.chunks(); ++chunk)
        EXPECT_EQ(machine.content(0, chunk), expected);
    }
}

class AllgatherSchedule : public testing::TestWithParam<Named> {};

TEST_P(AllgatherSchedule, GivesEveryChunkToEverybody) {
  for (int size = 1; size <= kLargestSize; ++size) {
    if (!GetParam().is_for(size)) continue;
    SCOPED_TRACE(size);
    Machine machine(size, GetParam().make);
    ASSERT_EQ(machine.chunks(), size);
    expect_pairs(machine.schedules());
    expect_one_change_a_phase(machine.schedules());
    for (int rank = 0; rank < size; ++rank)
      machine.content(rank, rank) = machine.expressions().leaf(rank);
    machine.run();
    for (int rank = 0; rank < size; ++rank)
      for (int chunk = 0; chunk < size; ++chunk) ASSERT_EQ(machine.content(rank, chunk), chunk);
  }
}

INSTANTIATE_TEST_SUITE_P(All, AllgatherSchedule,
                         testing::Values(Named{"direct", direct_allgather},
                                         Named{"ring", ring_allgather},
                                         Named{"recursive_doubling", recursive_doubling_allgather,
                                               /*needs_power_of_two=*/true}),
                         [](const auto& info) { return info.param.name; });

TEST(ReducescatterSchedule, GivesEachRankItsChunkReducedInAscendingOrderOfRank) {
  for (int size = 1; size <= kLargestSize; ++size) {
    SCOPED_TRACE(size);
    Machine machine(size, direct_reducescatter);
    ASSERT_EQ(machine.chunks(), size);
    expect_pairs(machine.schedules());
    expect_one_change_a_phase(machine.schedules());
    for (int rank = 0; rank < size; ++rank)
      for (int chunk = 0; chunk < size; ++chunk)
        machine.content(rank, chunk) = machine.expressions().leaf(rank);
    machine.run();
    int expected = machine.expressions().leaf(0);
    for (int rank = 1; rank < size; ++rank)
      expected = machine.expressions().combine(expected, machine.expressions().leaf(rank));
    for (int rank = 0; rank < size; ++rank)
      for (int chunk = 0; chunk < size; ++chunk)
        ASSERT_EQ(machine.content(rank, chunk),
                  chunk == rank ? expected : machine.expressions().leaf(rank));
  }
}

TEST(AlltoallSchedule, GivesEachRankWhatEveryRankHasForIt) {
  for (int size = 1; size <= kLargestSize; ++size) {
    SCOPED_TRACE(size);
    Machine machine(size, direct_alltoall);
    ASSERT_EQ(machine.chunks(), size * size);
    expect_pairs(machine.schedules());
    expect_one_change_a_phase(machine.schedules());
    for (int rank = 0; rank < size; ++rank)
      for (int to = 0; to < size; ++to)
        machine.content(rank, rank * size + to) = machine.expressions().leaf(rank);
    machine.run();
    for (int rank = 0; rank < size; ++rank)
      for (int from = 0; from < size; ++from)
        for (int to = 0; to < size; ++to) {
          const bool here = from == rank || to == rank;
          ASSERT_EQ(machine.content(rank, from * size + to), here ? from : kNothing);
        }
  }
}

struct NamedBroadcast {
  const char* name;
  Schedule (*make)(int rank, int size, int root);
};

class BroadcastSchedule : public testing::TestWithParam<NamedBroadcast> {};

TEST_P(BroadcastSchedule, GivesTheContentOfEveryRootToEverybody) {
  for (int size = 1; size <= kLargestSize; ++size)
    for (int root = 0; root < size; ++root) {
      SCOPED_TRACE(testing::Message() << "root " << root << " of " << size);
      Machine machine(size,
                      [&](int rank, int ranks) { return GetParam().make(rank, ranks, root); });
      expect_pairs(machine.schedules());
      expect_one_change_a_phase(machine.schedules());
      for (int chunk = 0; chunk < machine.chunks(); ++chunk)
        machine.content(root, chunk) = machine.expressions().leaf(root);
      machine.run();
      for (int rank = 0; rank < size; ++rank)
        for (int chunk = 0; chunk < machine.chunks(); ++chunk)
          ASSERT_EQ(machine.content(rank, chunk), root);
    }
}

INSTANTIATE_TEST_SUITE_P(All, BroadcastSchedule,
                         testing::Values(NamedBroadcast{"direct", direct_broadcast},
                                         NamedBroadcast{"binomial", binomial_broadcast},
                                         NamedBroadcast{"chain", chain_broadcast}),
                         [](const auto& info) { return info.param.name; });

TEST(Schedule, RingSendsLessThanTwoBuffersARank) {
  for (int size = 2; size <= kLargestSize; ++size) {
    int sent = 0;
    for (const Phase& phase : ring_allreduce(0, size).phases)
      sent += static_cast<int>(phase.sends.size());
    EXPECT_EQ(sent, 2 * (size - 1));  // of 1 / size each
  }
}

TEST(Schedule, AChainSendsEachByteOncePerRank) {
  for (int size = 2; size <= kLargestSize; ++size)
    for (int rank = 0; rank < size; ++rank) {
      const Schedule schedule = chain_broadcast(rank, size, 1);
      int sent = 0;
      for (const Phase& phase : schedule.phases)
        for (const Send& send : phase.sends) sent += send.range.count;
      EXPECT_EQ(sent, rank == 0 ? 0 : schedule.chunks) << "rank " << rank << " of " << size;
    }
}

TEST(Schedule, HalvingDoublingSendsLessThanTwoBuffersARank) {
  for (int size = 2; size <= kLargestSize; size *= 2) {
    int sent = 0;
    for (const Phase& phase : halving_doubling_allreduce(1, size).phases)
      for (const Send& send : phase.sends) sent += send.range.count;
    EXPECT_EQ(sent, 2 * (size - 1));  // of 1 / size each
  }
}

TEST(Schedule, HalvingDoublingSendsMostToTheNearest) {
  const auto phases = halving_doubling_allreduce(5, 8).phases;
  std::vector<std::pair<int, int>> sent;  // peer, chunks
  for (const Phase& phase : phases)
    for (const Send& send : phase.sends) sent.emplace_back(send.peer, send.range.count);
  EXPECT_EQ(sent,
            (std::vector<std::pair<int, int>>{{4, 4}, {7, 2}, {1, 1}, {1, 1}, {7, 2}, {4, 4}}));
}

TEST(Schedule, LatencyGrowsWithTheLogarithm) {
  EXPECT_EQ(halving_doubling_allreduce(0, 64).phases.size(), 12u);
  EXPECT_EQ(tree_allreduce(0, 33).phases.size(), 12u);
  EXPECT_EQ(recursive_doubling_allreduce(0, 64).phases.size(), 6u);
  EXPECT_EQ(recursive_doubling_allreduce(0, 63).phases.size(), 5u + 2u);
  EXPECT_EQ(binomial_broadcast(0, 64, 3).phases.size(), 6u);
}

}  // namespace
}  // namespace hvd
