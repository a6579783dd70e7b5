#include "launcher/remote/host_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace hvd::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Branches, AreOneHostEachUpToTheFanOut) {
  EXPECT_THAT(branches(0, 0, 64), IsEmpty());
  EXPECT_THAT(branches(5, 3, 3), ElementsAre(Branch{5, 1}, Branch{6, 1}, Branch{7, 1}));
}

TEST(Branches, ShareTheOthersEvenlyAndKeepTheOrder) {
  EXPECT_THAT(branches(0, 7, 2), ElementsAre(Branch{0, 4}, Branch{4, 3}));
  EXPECT_THAT(branches(1, 3, 2), ElementsAre(Branch{1, 2}, Branch{3, 1}));
  EXPECT_THAT(branches(2, 4, 1), ElementsAre(Branch{2, 4}));
}

/// Traverses a whole tree: records hosts in visiting order, and the depth.
struct Walk {
  size_t fan_out;
  std::vector<size_t> met{};
  size_t depth = 0;
  void visit(const Branch& branch, size_t level) {
    met.push_back(branch.first);
    depth = std::max(depth, level);
    const auto below = branches(branch.first + 1, branch.count - 1, fan_out);
    EXPECT_LE(below.size(), fan_out);
    for (const Branch& one : below) visit(one, level + 1);
  }
};

TEST(Branches, HoldEveryHostOnceAtLittleDepth) {
  struct Case {
    size_t hosts, fan_out, depth;
  };
  for (const auto& [hosts, fan_out, depth] :
       {Case{64, 64, 1}, Case{65, 64, 2}, Case{1000, 64, 2}, Case{4160, 64, 2}, Case{4161, 64, 3},
        Case{7, 2, 3}, Case{14, 2, 3}, Case{15, 2, 4}, Case{5, 1, 5}}) {
    Walk walk{.fan_out = fan_out};
    for (const Branch& branch : branches(0, hosts, fan_out)) walk.visit(branch, 1);
    std::vector<size_t> all(hosts);
    for (size_t host = 0; host < hosts; ++host) all[host] = host;
    EXPECT_EQ(walk.met, all) << hosts << " by " << fan_out;
    EXPECT_EQ(walk.depth, depth) << hosts << " by " << fan_out;
  }
}

}  // namespace
}  // namespace hvd::launcher
