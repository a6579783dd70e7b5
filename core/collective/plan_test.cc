#include "core/collective/plan.h"

#include <gtest/gtest.h>

namespace hvd {
namespace {

Plan plan_for(Schedule schedule) {
  Layout layout = Layout::split(4096, 1024, schedule.chunks, 4);
  return Plan(std::move(schedule), std::move(layout));
}

TEST(Plan, KnowsWhatIsStillAsItCameIn) {
  const Plan plan = plan_for(direct_allreduce(1, 3));
  EXPECT_TRUE(plan.is_fresh(1, 0));
  EXPECT_FALSE(plan.is_fresh(1, 1));  // reduced on this rank in the first
  EXPECT_TRUE(plan.is_fresh(0, 1));   // received in the second
  ASSERT_EQ(plan.packs[0].size(), 2u);
  EXPECT_TRUE(plan.packs[0][0].fresh);
  ASSERT_EQ(plan.packs[1].size(), 1u);
  EXPECT_EQ(plan.packs[1][0].chunk, 1);
  EXPECT_FALSE(plan.packs[1][0].fresh);
  EXPECT_EQ(plan.finished_reduces[0], std::vector<int>{1});
  EXPECT_TRUE(plan.finished_reduces[1].empty());
  EXPECT_TRUE(plan.unchanged.empty());
}

TEST(Plan, KnowsOfHowManyRanksItHoldsAReductionBeforeEachMerge) {
  using Counts = std::vector<std::vector<int>>;
  EXPECT_EQ(plan_for(one_shot_allreduce(1, 4)).own_contributions, (Counts{{1, 1, 1}}));
  EXPECT_EQ(plan_for(ring_allreduce(1, 3)).own_contributions, (Counts{{1}, {1}, {1}, {2}}));
  // The fifth rank sends to the first before, and receives the result after.
  EXPECT_EQ(plan_for(recursive_doubling_allreduce(0, 5)).own_contributions,
            (Counts{{1}, {2}, {3}, {}}));
  std::vector<int> counts = {7};
  const Schedule schedule = recursive_doubling_allreduce(1, 5);
  count_contributions(schedule.phases[1].receives, 1, 1, counts);
  EXPECT_EQ(counts, (std::vector<int>{2, 1}));
}

TEST(Plan, KnowsWhatNobodyChanges) {
  EXPECT_EQ(plan_for(direct_broadcast(2, 4, 2)).unchanged, std::vector<int>{0});
  EXPECT_TRUE(plan_for(direct_broadcast(1, 4, 2)).unchanged.empty());
  EXPECT_EQ(plan_for(direct_allgather(2, 4)).unchanged, std::vector<int>{2});
}

TEST(Plan, StaysNearToItselfOnlyWhereItReadsAgainWhatItHasSent) {
  EXPECT_EQ(plan_for(one_shot_allreduce(0, 2)).most_ahead, 2u);
  for (Schedule schedule : {direct_allreduce(0, 2), direct_broadcast(0, 2, 0),
                            direct_allgather(0, 2), one_shot_allreduce(0, 1)})
    EXPECT_GT(plan_for(std::move(schedule)).most_ahead, 1000u);
}

}  // namespace
}  // namespace hvd
