#include "launcher/dump/chain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "launcher/dump/rank_report.h"

namespace hvd::launcher {
namespace {

using std::chrono_literals::operator""s;
using ::testing::ElementsAre;

struct Set {
  std::string name{};
  std::vector<int32_t> between{};
  std::chrono::milliseconds age = 12s;
};

RankReport idle(int number) {
  return {.rank = number,
          .process = 100 + number,
          .run_state = 'S',
          .has_board = true,
          .stage = RankStage::running,
          .answers = true,
          .state = BoardState{.rank = number, .size = 5},
          .stack = {{"/job/train.py", 30 + number, "rest", "time.sleep(9)"}}};
}

RankReport waiting(int number, const std::vector<Set>& sets) {
  RankReport report = idle(number);
  for (const Set& set : sets)
    report.state->pending.push_back(
        {.name = set.name, .what = "allreduce", .between = set.between, .age = set.age});
  return report;
}

const Set kA{"a", {0, 1}}, kB{"b", {1, 2}, 10s}, kC{"c", {0, 2}, 11s};

TEST(Chain, EndsAtTheRankThatWaitsForNone) {
  const Cause cause = explain({waiting(0, {kA}), waiting(1, {kB}), idle(2), idle(3)});
  EXPECT_EQ(cause.text,
            "rank 2 has not submitted b, which rank 1 has awaited for 10 s; its main thread is at "
            "train.py:32 in rest");
  EXPECT_THAT(cause.ranks, ElementsAre(2));
}

TEST(Chain, IsFollowedThroughAYoungLink) {
  Set young = kB;
  young.age = 2s;
  EXPECT_THAT(explain({waiting(0, {kA}), waiting(1, {young}), idle(2)}).ranks, ElementsAre(2));
  young.age = std::chrono::milliseconds(900);  // it may just be in progress
  EXPECT_THAT(explain({waiting(0, {kA}), waiting(1, {young}), idle(2)}).ranks, ElementsAre(1));
}

TEST(Chain, EndsWhereNoMissingRankWaits) {
  const Set x{"x", {0, 1, 3}}, y{"y", {1, 2, 4}};
  const Cause cause =
      explain({waiting(0, {x}), waiting(1, {y}), waiting(2, {{"z", {2, 4}}}), idle(3), idle(4)});
  EXPECT_EQ(cause.operation, "z") << "rank 3 is not the reason of all";
}

TEST(Chain, ThatIsACycleNamesAllOfIt) {
  const Cause cause = explain({waiting(0, {kA}), waiting(1, {kB}), waiting(2, {kC}), idle(3)});
  EXPECT_EQ(cause.kind, HangClass::order);
  EXPECT_THAT(cause.ranks, ElementsAre(0, 1, 2));
  EXPECT_EQ(cause.operation, "a");
  EXPECT_EQ(cause.text,
            "ranks 0-2 have waited for each other for 10 s: rank 0 for a, which rank 1 has not "
            "submitted; rank 1 for b, which rank 2 has not submitted; rank 2 for c, which rank 0 "
            "has not submitted");
}

TEST(Chain, IntoACycleNamesTheCycle) {
  const Set first{"first", {0, 4}, 20s};
  const Cause cause =
      explain({waiting(0, {kA}), waiting(1, {kB}), waiting(2, {kC}), waiting(4, {first})});
  EXPECT_THAT(cause.ranks, ElementsAre(0, 1, 2));
}

TEST(Chain, ShowsTheBeginOfALongCycle) {
  std::vector<RankReport> reports;
  for (int i = 0; i < 6; ++i) {
    std::vector<int32_t> two{i, (i + 1) % 6};
    std::ranges::sort(two);
    reports.push_back(waiting(i, {{"set." + std::to_string(i), two}}));
  }
  EXPECT_THAT(explain(reports).text,
              ::testing::EndsWith("which rank 4 has not submitted; and 2 more"));
  EXPECT_THAT(explain(reports).ranks, ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(Chain, OfTwoOperationsIsAnotherOrder) {
  const Cause cause = explain({waiting(0, {kA}), waiting(1, {{"b", {0, 1}, 11s}})});
  EXPECT_EQ(cause.text,
            "rank 1 has not submitted a, which rank 0 has awaited for 12 s; it waits for b "
            "instead; its main thread is at train.py:31 in rest");
}

}  // namespace
}  // namespace hvd::launcher
