#include "core/backend/host/faster_way.h"

#include <gtest/gtest.h>

#include <chrono>
#include <utility>
#include <vector>

namespace hvd {
namespace {

using namespace std::chrono_literals;

/// What each way takes on a rank.
struct Rank {
  Duration first, second;
};

/// All trials on all ranks, and the decision.
void go_through_trials(std::vector<FasterWay>& ways, const std::vector<Rank>& ranks) {
  bool is_last = false;
  for (size_t call = 0; !is_last; ++call) {
    ASSERT_LT(call, 2 * FasterWay::kMostTrials);
    for (size_t i = 0; i < ways.size(); ++i) {
      ASSERT_TRUE(ways[i].is_trying());
      is_last = ways[i].took(ways[i].takes_second() ? ranks[i].second : ranks[i].first, 100);
    }
  }
  std::vector<FasterWay::Times> all;
  for (const FasterWay& way : ways) all.push_back(way.times());
  for (FasterWay& way : ways) way.decide(all);
}

/// The one that all ranks decide for.
bool second_is_chosen(const std::vector<Rank>& ranks) {
  std::vector<FasterWay> ways(ranks.size());
  go_through_trials(ways, ranks);
  for (const FasterWay& way : ways) {
    EXPECT_FALSE(way.is_trying());
    EXPECT_EQ(way.takes_second(), ways[0].takes_second());
  }
  return ways[0].takes_second();
}

TEST(FasterWay, IsTheOneThatIsFasterForTheRankThatWaitsLeast) {
  EXPECT_TRUE(second_is_chosen({{10us, 9us}}));
  EXPECT_FALSE(second_is_chosen({{9us, 10us}}));
  EXPECT_FALSE(second_is_chosen({{9us, 10us}, {1ms, 10us}}));
  EXPECT_TRUE(second_is_chosen({{10us, 1ms}, {10us, 9us}, {10us, 1ms}}));
}

TEST(FasterWay, IsTheOneThatIsFasterAByte) {
  FasterWay way;
  for (size_t i = 0; i < FasterWay::kMostTrials; ++i) way.took(10us, 1000);
  for (size_t i = 0; i < FasterWay::kMostTrials; ++i) way.took(9us, 500);
  way.decide(std::vector{way.times()});
  EXPECT_FALSE(way.takes_second());
}

TEST(FasterWay, StaysWithTheFirstWhereTheyAreEqual) {
  EXPECT_FALSE(second_is_chosen({{10us, 10us}, {10us, 10us}}));
}

TEST(FasterWay, ForgivesEachWayASlowStart) {
  FasterWay way;
  for (size_t i = 0; i < FasterWay::kSettling.calls; ++i) way.took(1us, 100);
  for (size_t i = 0; i < FasterWay::kTimed.calls; ++i) way.took(10us, 100);
  ASSERT_TRUE(way.takes_second());
  for (size_t i = 0; i < FasterWay::kSettling.calls; ++i) way.took(1s, 100);
  for (size_t i = 0; i < FasterWay::kTimed.calls; ++i)
    EXPECT_EQ(way.took(9us, 100), i + 1 == FasterWay::kTimed.calls);
  way.decide(std::vector{way.times()});
  EXPECT_TRUE(way.takes_second());
}

/// Calls of each way until one is chosen: in the first, and in the second.
std::pair<size_t, size_t> calls_of_each(size_t bytes) {
  FasterWay way;
  std::pair<size_t, size_t> calls;
  while (way.is_trying()) {
    ++(way.takes_second() ? calls.second : calls.first);
    way.took(1ms, bytes);
  }
  return calls;
}

TEST(FasterWay, TriesFewerCallsWhereTheyAreLong) {
  constexpr size_t kAll = FasterWay::kMostTrials;
  EXPECT_EQ(calls_of_each(256 * KiB), std::pair(kAll, kAll));
  EXPECT_EQ(calls_of_each(2 * MiB), std::pair(size_t{4 + 8}, size_t{4 + 8}));
  constexpr size_t kLeast = FasterWay::kSettling.least + FasterWay::kTimed.least;
  EXPECT_EQ(calls_of_each(16 * MiB), std::pair(kLeast, kLeast));
}

TEST(FasterWay, ForgivesASlowStartOfLongCallsToo) {
  FasterWay way;
  for (const auto& [slow, then] : {std::pair{1us, 10ms}, std::pair{1000'000us, 9ms}}) {
    for (size_t i = 0; i < FasterWay::kSettling.least; ++i) way.took(slow, 16 * MiB);
    for (size_t i = 0; i < FasterWay::kTimed.least; ++i) way.took(then, 16 * MiB);
  }
  ASSERT_FALSE(way.is_trying());
  way.decide(std::vector{way.times()});
  EXPECT_TRUE(way.takes_second());
}

TEST(FasterWay, IsLookedForAgainAfterManyCalls) {
  std::vector<FasterWay> ways(1);
  go_through_trials(ways, {{2us, 1us}});
  for (size_t i = 0; i < FasterWay::kKept; ++i) {
    ASSERT_FALSE(ways[0].is_trying());
    ASSERT_TRUE(ways[0].takes_second());
    ways[0].passed();
  }
  EXPECT_TRUE(ways[0].is_trying());
  go_through_trials(ways, {{1us, 2us}});
  EXPECT_FALSE(ways[0].takes_second());
}

}  // namespace
}  // namespace hvd
