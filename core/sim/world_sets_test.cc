// Joins and process sets in whole jobs.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/sim/seeds.h"
#include "core/sim/world.h"

namespace hvd::sim {
namespace {

using testing::Each;
using testing::HasSubstr;
using Operations = std::vector<std::shared_ptr<Completion>>;

bool all_done(const Operations& operations) {
  return std::all_of(operations.begin(), operations.end(),
                     [](const auto& operation) { return operation->handle.done(); });
}

void expect_all(const Operations& operations, Code code, uint64_t seed) {
  for (const auto& operation : operations) {
    ASSERT_TRUE(operation->handle.done()) << "seed " << seed;
    EXPECT_EQ(operation->handle.outcome().code, code)
        << operation->handle.outcome().text << " seed " << seed;
  }
}

std::vector<int> some_hosts(uint64_t seed) {
  const std::vector<std::vector<int>> shapes = {{2}, {4}, {1, 1}, {2, 1}, {3, 2, 2}};
  return shapes[seed % shapes.size()];
}

/// Submits the same request on every rank in a random order and runs until all have ended.
template <class Make>
Operations on_all(World& world, uint64_t seed, Make make) {
  Operations operations;
  for (int rank = 0; rank < world.size(); ++rank) operations.push_back(world.submit(rank, make()));
  EXPECT_TRUE(world.run_until([&] { return all_done(operations); })) << "seed " << seed;
  return operations;
}

// ---- join
// ----------------------------------------------------------------------------------------

TEST(WorldJoin, AJoinedRankContributesTheNeutralElementAndTheLastOneIsToldToAll) {
  for (const uint64_t seed : seeds(60)) {
    World world({.ranks_per_host = some_hosts(seed), .seed = seed});
    const int n = world.size();
    const int last = static_cast<int>(seed % static_cast<uint64_t>(n));
    Operations joins;
    for (int rank = 0; rank < n; ++rank) {
      if (rank != last) joins.push_back(world.submit(rank, join()));
    }
    std::mt19937_64 random(seed);
    int countdown = static_cast<int>(random() % 200);  // before, during and after the negotiation
    world.run_until([&] { return --countdown < 0; });
    std::vector<std::vector<float>> tensors(4, std::vector<float>(3000, 6.0f));
    const Operations alone = {world.submit(last, allreduce("s", tensors[0])),
                              world.submit(last, allreduce("a", tensors[1], ReduceOp::average)),
                              world.submit(last, allreduce("m", tensors[2], ReduceOp::max)),
                              world.submit(last, allreduce("p", tensors[3], ReduceOp::product))};
    ASSERT_TRUE(world.run_until([&] { return all_done(alone); })) << "seed " << seed;
    expect_all(alone, Code::ok, seed);
    EXPECT_THAT(tensors[0], Each(6.0f));
    EXPECT_THAT(tensors[1], Each(testing::FloatEq(6.0f / static_cast<float>(n))));
    EXPECT_THAT(tensors[2], Each(6.0f));
    EXPECT_THAT(tensors[3], Each(6.0f));
    for (const auto& one : joins) EXPECT_FALSE(one->handle.done());
    joins.push_back(world.submit(last, join()));
    ASSERT_TRUE(world.run_until([&] { return all_done(joins); })) << "seed " << seed;
    expect_all(joins, Code::ok, seed);
    for (const auto& one : joins) EXPECT_EQ(one->number, last) << "seed " << seed;
    EXPECT_TRUE(world.process_sets(0).find(0));
    std::vector<std::vector<float>> again(n, std::vector<float>(10, 1.0f));
    Operations together;
    for (int rank = 0; rank < n; ++rank)
      together.push_back(world.submit(rank, allreduce("s", again[rank])));
    ASSERT_TRUE(world.run_until([&] { return all_done(together); })) << "seed " << seed;
    for (const auto& tensor : again) EXPECT_THAT(tensor, Each(static_cast<float>(n)));
  }
}

TEST(WorldJoin, WhoHasJoinedMaySubmitNothingMoreAndStaysJoined) {
  World world({.ranks_per_host = {2}, .seed = 3});
  const auto joined = world.submit(0, join());
  std::vector<float> tensor(3, 1.0f);
  const Operations refused = {world.submit(0, join()), world.submit(0, allreduce("x", tensor))};
  ASSERT_TRUE(world.run_until([&] { return all_done(refused); }));
  expect_all(refused, Code::invalid_argument, 3);
  EXPECT_THAT(refused[0]->handle.outcome().text, HasSubstr("join: this rank has joined"));
  EXPECT_FALSE(joined->handle.done());
  const auto other = world.submit(1, join());
  ASSERT_TRUE(world.run_until([&] { return all_done({joined, other}); }));
  EXPECT_EQ(joined->number, other->number);
}

TEST(WorldJoin, EverythingButAllreduceFailsWhileSomebodyHasJoinedAndTheJoinGoesOn) {
  for (const uint64_t seed : seeds(20)) {
    World world({.ranks_per_host = {2, 1}, .seed = seed});
    Operations joins = {world.submit(1, join())};
    std::vector<float> a(2), b(2), c(2), d(2);
    const Operations failing = {
        world.submit(0, allgather("g", a)),    world.submit(2, allgather("g", b)),
        world.submit(0, broadcast("b", c, 0)), world.submit(2, broadcast("b", d, 0)),
        world.submit(0, barrier("barrier")),   world.submit(2, barrier("barrier")),
        world.submit(0, add_process_set({0})), world.submit(2, add_process_set({0}))};
    ASSERT_TRUE(world.run_until([&] { return all_done(failing); })) << "seed " << seed;
    expect_all(failing, Code::mismatch, seed);
    EXPECT_THAT(failing[0]->handle.outcome().text, HasSubstr("a rank has joined"));
    EXPECT_FALSE(joins[0]->handle.done());
    joins.push_back(world.submit(0, join()));
    joins.push_back(world.submit(2, join()));
    ASSERT_TRUE(world.run_until([&] { return all_done(joins); })) << "seed " << seed;
    expect_all(joins, Code::ok, seed);
  }
}

TEST(WorldJoin, ARankThatHasJoinedContributesNothingInItsProcessSetsToo) {
  for (const uint64_t seed : seeds(40)) {
    World world({.ranks_per_host = {2, 2, 1}, .seed = seed});
    const Operations added = on_all(world, seed, [] { return add_process_set({0, 2, 3}); });
    const auto set = *world.process_sets(0).find(added[0]->number);
    const auto on_set = [&](Request request) {
      request.group = set.group;
      return request;
    };
    // All members behind rank 2 have joined, and rank 4, which is not a member.
    Operations joins = {world.submit(2, join()), world.submit(3, join()), world.submit(4, join())};
    std::vector<float> sum(3000, 6.0f), least(3, 6.0f), moved(2), world_sum(5, 6.0f),
        other(5, 1.0f);
    const Operations alone = {world.submit(0, on_set(allreduce("sum", sum))),
                              world.submit(0, on_set(allreduce("least", least, ReduceOp::min))),
                              world.submit(0, allreduce("world", world_sum)),
                              world.submit(1, allreduce("world", other))};
    ASSERT_TRUE(world.run_until([&] { return all_done(alone); })) << "seed " << seed;
    expect_all(alone, Code::ok, seed);
    EXPECT_THAT(sum, Each(6.0f));
    EXPECT_THAT(least, Each(6.0f));
    EXPECT_THAT(world_sum, Each(7.0f));
    const Operations refused = {world.submit(0, on_set(allgather("g", moved)))};
    ASSERT_TRUE(world.run_until([&] { return all_done(refused); })) << "seed " << seed;
    expect_all(refused, Code::mismatch, seed);
    for (const int rank : {0, 1}) joins.push_back(world.submit(rank, join()));
    ASSERT_TRUE(world.run_until([&] { return all_done(joins); })) << "seed " << seed;
    std::vector<std::vector<float>> again(3, std::vector<float>(10, 1.0f));
    Operations together;
    for (const int rank : {0, 2, 3}) {
      std::vector<float>& tensor = again[together.size()];
      together.push_back(world.submit(rank, on_set(allreduce("sum", tensor))));
    }
    ASSERT_TRUE(world.run_until([&] { return all_done(together); })) << "seed " << seed;
    for (const auto& tensor : again) EXPECT_THAT(tensor, Each(3.0f));
  }
}

// The leader of the host, which alone is connected to both, has done its part.
TEST(WorldSets, ARankThatFailsWhileTheJobEndsIsNamedToTheMemberThatWaitsForIt) {
  Knobs knobs;
  knobs.staging_bytes = 64 * KiB;
  int waited = 0;
  for (const uint64_t seed : seeds(40)) {
    World world({.ranks_per_host = {3}, .seed = seed, .knobs = knobs, .shared_memory = true});
    const auto added = on_all(world, seed, [] { return add_process_set({1, 2}); });
    const ProcessSet set = *world.process_sets(1).find(added[1]->number);
    std::vector<std::vector<float>> tensors(2, std::vector<float>(200000, 1.0f));
    Operations sums;
    for (const int rank : {1, 2})
      sums.push_back(world.submit(rank, on(set, allreduce("sum", tensors[rank - 1]))));
    ASSERT_TRUE(world.run_until([&] { return world.is_moving_data(); })) << "seed " << seed;
    world.shutdown(0);
    const auto all_drain = [&] {
      const auto drains = [&](int rank) { return world.ending(rank).code == Code::shut_down; };
      return drains(0) && drains(1) && drains(2);
    };
    ASSERT_TRUE(world.run_until(all_drain)) << "seed " << seed;
    if (all_done(sums)) continue;
    ++waited;
    world.fail(1);
    ASSERT_TRUE(world.run_until([&] { return all_done(sums); }, 3)) << "seed " << seed;
    EXPECT_EQ(sums[1]->handle.outcome().code, Code::peer_lost) << "seed " << seed;
    EXPECT_EQ(sums[1]->handle.outcome().rank, 1) << "seed " << seed;
  }
  EXPECT_GT(waited, 0);
}

TEST(WorldJoin, EndsWithTheJob) {
  for (const uint64_t seed : seeds(20)) {
    World world({.ranks_per_host = {2, 1}, .seed = seed});
    const Operations joins = {world.submit(0, join()), world.submit(2, join())};
    if (seed % 2 == 0) {
      world.shutdown(1);
    } else {
      world.lose(1);
    }
    ASSERT_TRUE(world.run_until([&] { return all_done(joins); }, 3)) << "seed " << seed;
    expect_all(joins, seed % 2 == 0 ? Code::shut_down : Code::peer_lost, seed);
    EXPECT_EQ(joins[0]->handle.outcome().rank, 1);
  }
}

TEST(WorldJoin, IsNoStall) {
  Knobs knobs;
  knobs.stall_check = std::chrono::seconds(1);
  knobs.stall_shutdown = std::chrono::seconds(2);
  knobs.log_level = LogLevel::fatal;
  World world({.ranks_per_host = {2}, .seed = 1, .knobs = knobs});
  const auto joined = world.submit(0, join());
  world.run_until([&] { return joined->handle.done(); }, 20);
  EXPECT_FALSE(joined->handle.done());
  const auto other = world.submit(1, join());
  ASSERT_TRUE(world.run_until([&] { return all_done({joined, other}); }));
  expect_all({joined, other}, Code::ok, 1);
}

// ---- process sets
// --------------------------------------------------------------------------------

TEST(WorldSets, AreAddedAlikeOnEveryRankAndUsedByTheirMembersAlone) {
  for (const uint64_t seed : seeds(40)) {
    World world({.ranks_per_host = {2, 2}, .seed = seed});
    const std::vector<std::vector<int>> lists = {{0, 1}, {1, 2, 3}, {2}, {0, 3}};
    for (const auto& ranks : lists) {
      const auto added = on_all(world, seed, [&] { return add_process_set(ranks); });
      expect_all(added, Code::ok, seed);
      for (const auto& one : added) EXPECT_EQ(one->number, added[0]->number);
    }
    std::vector<std::vector<std::vector<float>>> tensors(4, {4, std::vector<float>(2000)});
    Operations operations;
    std::mt19937_64 random(seed);
    for (int rank = 0; rank < 4; ++rank) {
      std::vector<size_t> order = {0, 1, 2, 3};
      std::shuffle(order.begin(), order.end(), random);
      for (const size_t i : order) {
        const auto set = world.process_sets(rank).find(static_cast<int32_t>(i + 1));
        ASSERT_EQ(set->ranks, lists[i]);
        if (set->rank_of(rank) == kNoRank) continue;
        tensors[rank][i].assign(2000, static_cast<float>(rank + 1));
        operations.push_back(world.submit(rank, on(*set, allreduce("same", tensors[rank][i]))));
      }
    }
    ASSERT_TRUE(world.run_until([&] { return all_done(operations); })) << "seed " << seed;
    expect_all(operations, Code::ok, seed);
    for (size_t i = 0; i < lists.size(); ++i) {
      float sum = 0;
      for (const int rank : lists[i]) sum += static_cast<float>(rank + 1);
      for (const int rank : lists[i]) EXPECT_THAT(tensors[rank][i], Each(sum)) << "seed " << seed;
    }
  }
}

TEST(WorldSets, TheRootOfABroadcastIsAGlobalRank) {
  for (const uint64_t seed : seeds(20)) {
    World world({.ranks_per_host = {2, 2}, .seed = seed});
    on_all(world, seed, [] { return add_process_set({1, 3}); });
    std::vector<float> of_1(500, 1.0f), of_3(500, 3.0f);
    const auto set = *world.process_sets(0).find(1);
    const Operations operations = {world.submit(1, on(set, broadcast("b", of_1, 3))),
                                   world.submit(3, on(set, broadcast("b", of_3, 3)))};
    ASSERT_TRUE(world.run_until([&] { return all_done(operations); })) << "seed " << seed;
    EXPECT_THAT(of_1, Each(3.0f));
    EXPECT_THAT(of_3, Each(3.0f));
  }
}

TEST(WorldSets, OneThatGoesFinishesWhatWasAgreedAndFailsTheRest) {
  for (const uint64_t seed : seeds(40)) {
    World world({.ranks_per_host = {2, 1}, .seed = seed});
    on_all(world, seed, [] { return add_process_set({0, 1}); });
    const auto set = *world.process_sets(0).find(1);
    std::vector<float> a(20000, 1.0f), b(20000, 2.0f), lonely(3);
    const Operations running = {world.submit(0, on(set, allreduce("x", a))),
                                world.submit(1, on(set, allreduce("x", b)))};
    const auto alone = world.submit(1, on(set, allreduce("lonely", lonely)));
    expect_all(on_all(world, seed, [&] { return remove_process_set(set); }), Code::ok, seed);
    ASSERT_TRUE(world.run_until([&] { return all_done(running) && alone->handle.done(); }));
    expect_all(running, Code::ok, seed);
    EXPECT_THAT(a, Each(3.0f));
    EXPECT_EQ(alone->handle.outcome().code, Code::mismatch);
    EXPECT_THAT(alone->handle.outcome().text, HasSubstr("the process set was removed"));
    for (int rank = 0; rank < 3; ++rank) EXPECT_FALSE(world.process_sets(rank).find(1));
    const auto late = world.submit(0, on(set, allreduce("late", lonely)));
    ASSERT_TRUE(world.run_until([&] { return late->handle.done(); }));
    EXPECT_THAT(late->handle.outcome().text, HasSubstr("the process set has been removed"));
    const auto added = on_all(world, seed, [] { return add_process_set({1, 2}); });
    for (const auto& one : added) EXPECT_EQ(one->number, 2);  // the id 1 is not reused
  }
}

TEST(WorldSets, RanksThatWantDifferentOnesAreToldOnEveryRank) {
  for (const uint64_t seed : seeds(10)) {
    World world({.ranks_per_host = {3}, .seed = seed});
    const Operations operations = {world.submit(0, add_process_set({0, 1})),
                                   world.submit(1, add_process_set({0, 1})),
                                   world.submit(2, add_process_set({0, 2}))};
    ASSERT_TRUE(world.run_until([&] { return all_done(operations); })) << "seed " << seed;
    expect_all(operations, Code::mismatch, seed);
    EXPECT_THAT(operations[0]->handle.outcome().text, HasSubstr("rank 2 has [0, 2]"));
    expect_all(on_all(world, seed, [] { return add_process_set({0, 1}); }), Code::ok, seed);
  }
}

}  // namespace
}  // namespace hvd::sim
