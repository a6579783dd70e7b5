#include "core/bootstrap/levels.h"

#include <gtest/gtest.h>

#include <numeric>

namespace hvd {
namespace {

using Ranks = std::vector<int>;

Ranks world(const Topology& topology) {
  Ranks ranks(static_cast<size_t>(topology.ranks()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

TEST(Levels, AreTheHostAndTheSamePlaceOnAllHosts) {
  const Topology topology = Topology::of({3, 3});
  const auto levels = levels_of(topology, world(topology), 4);
  ASSERT_TRUE(levels);
  EXPECT_EQ(levels->host, (Ranks{3, 4, 5}));
  EXPECT_EQ(levels->across, (Ranks{1, 4}));
  EXPECT_EQ(levels->all, world(topology));
}

TEST(Levels, FollowThePlaceWhereHostsAreMixed) {
  Topology topology;
  topology.host_ranks = {{0, 3}, {1, 2}};
  topology.host_of = {0, 1, 1, 0};
  const auto levels = levels_of(topology, world(topology), 2);
  ASSERT_TRUE(levels);
  EXPECT_EQ(levels->host, (Ranks{1, 2}));
  EXPECT_EQ(levels->across, (Ranks{3, 2}));
  EXPECT_EQ(levels->all, (Ranks{0, 3, 1, 2}));
}

TEST(Levels, OfASetCountItsRanksOnly) {
  const Topology topology = Topology::of({3, 1, 4});
  const auto levels = levels_of(topology, {0, 2, 5, 7}, 7);
  ASSERT_TRUE(levels);
  EXPECT_EQ(levels->host, (Ranks{5, 7}));
  EXPECT_EQ(levels->across, (Ranks{2, 7}));
  EXPECT_EQ(levels->all, (Ranks{0, 1, 2, 3}));
}

TEST(Levels, NeedSeveralHostsWithEquallyManyRanks) {
  EXPECT_FALSE(levels_of(Topology::of({4}), {0, 1, 2, 3}, 0));
  EXPECT_FALSE(levels_of(Topology::of({1, 1, 1}), {0, 1, 2}, 0));
  EXPECT_FALSE(levels_of(Topology::of({2, 1}), {0, 1, 2}, 0));
  EXPECT_FALSE(levels_of(Topology::of({2, 2}), {0, 1, 2}, 2));
  EXPECT_FALSE(levels_of(Topology::of({2, 2}), {0, 1}, 1));
}

TEST(Levels, UnequalHostsAreReportedIfLevelsAreEnabled) {
  Knobs asks;
  asks.hierarchical_allgather = true;
  const std::string text = warning_of_levels(Topology::of({2, 1}), asks);
  EXPECT_EQ(
      text,
      "HOROVOD_HIERARCHICAL_ALLGATHER has no effect on the world: it needs the same number of "
      "ranks on every host, but there are 2 on host 0, 1 on host 1");
  EXPECT_EQ(warning_of_levels(Topology::of({2, 2}), asks), "");
  EXPECT_EQ(warning_of_levels(Topology::of({3}), asks), "");
  EXPECT_EQ(warning_of_levels(Topology::of({2, 1}), Knobs()), "");
}

TEST(Levels, DeterministicSumsDoNotUseThemWhichIsReported) {
  Knobs asks;
  asks.torus_allreduce = asks.deterministic = true;
  EXPECT_EQ(warning_of_levels(Topology::of({2, 2}), asks),
            "HOROVOD_TORUS_ALLREDUCE has no effect on allreduce: HOROVOD_DETERMINISTIC is set, and "
            "hierarchical sums depend on the hosts");
  EXPECT_EQ(warning_of_levels(Topology::of({4}), asks), "");
  asks.torus_allreduce = false;
  asks.hierarchical_allgather = true;
  EXPECT_EQ(warning_of_levels(Topology::of({2, 2}), asks), "");
}

}  // namespace
}  // namespace hvd
