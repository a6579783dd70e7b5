#include "core/negotiate/topology.h"

#include <gtest/gtest.h>

#include <vector>

namespace hvd {
namespace {

TEST(Topology, NumbersRanksHostByHost) {
  const Topology topology = Topology::of({2, 1, 3});
  EXPECT_EQ(topology.ranks(), 6);
  EXPECT_EQ(topology.hosts(), 3);
  EXPECT_EQ(topology.host_ranks[2], (std::vector<int>{3, 4, 5}));
  EXPECT_TRUE(topology.is_leader(3));
  EXPECT_FALSE(topology.is_leader(4));
}

/// Returns the hosts below child host `child` of `host`.
int hosts_below(const Topology& topology, int host, int child) {
  const int below = topology.host_of[topology.rank_of_child(host, child)];
  int count = topology.child_hosts(below);
  for (int i = 0; i < topology.child_hosts(below); ++i) {
    const int local_ranks = static_cast<int>(topology.host_ranks[below].size());
    count += hosts_below(topology, below, local_ranks + i);
  }
  return count;
}

TEST(Topology, ReachesEveryRankThroughExactlyOneChild) {
  const Topology topology = Topology::of(std::vector<int>(20, 3), 2);
  for (int host = 0; host < topology.hosts(); ++host) {
    std::vector<int> through(topology.children(host));
    for (int rank = 0; rank < topology.ranks(); ++rank) {
      const int child = topology.child_towards(host, rank);
      if (child >= 0) ++through[child];
    }
    for (int child = 0; child < topology.children(host); ++child) {
      EXPECT_EQ(topology.child_towards(host, topology.rank_of_child(host, child)), child);
      const bool is_local = child < 3;
      EXPECT_EQ(through[child], is_local ? 1 : 3 * (1 + hosts_below(topology, host, child)));
    }
  }
  EXPECT_EQ(topology.children(0), 5);
}

TEST(Topology, ReachesNothingAboveAHost) {
  const Topology topology = Topology::of({1, 1, 1, 1}, 2);
  EXPECT_EQ(topology.child_towards(1, 0), -1);
  EXPECT_EQ(topology.child_towards(1, 2), -1);
  EXPECT_EQ(topology.child_towards(1, 3), 1);
}

TEST(Topology, CountsTheLevelsBelow) {
  const Topology topology = Topology::of(std::vector<int>(7, 1), 2);
  EXPECT_EQ(topology.levels_below(0), 2);
  EXPECT_EQ(topology.levels_below(1), 1);
  EXPECT_EQ(topology.levels_below(6), 0);
}

TEST(Topology, HasNoFurtherHostsOnAnEmptyBranch) {
  EXPECT_EQ(Topology::of({4}).children(0), 4);
  EXPECT_EQ(Topology::of({1, 1}).child_hosts(1), 0);
}

}  // namespace
}  // namespace hvd
