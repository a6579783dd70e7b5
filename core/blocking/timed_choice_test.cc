#include "core/blocking/timed_choice.h"

#include <gtest/gtest.h>

#include <chrono>
#include <utility>
#include <vector>

namespace hvd {
namespace {

using namespace std::chrono_literals;

/// The time of each algorithm on a rank.
struct Rank {
  Duration first, second;
};

/// Runs all trials on all ranks, then the decision.
void go_through_trials(std::vector<TimedChoice>& ways, const std::vector<Rank>& ranks) {
  bool is_last = false;
  for (size_t call = 0; !is_last; ++call) {
    ASSERT_LT(call, 2 * TimedChoice::kMostTrials);
    for (size_t i = 0; i < ways.size(); ++i) {
      ASSERT_TRUE(ways[i].is_trying());
      is_last = ways[i].took(ways[i].takes_second() ? ranks[i].second : ranks[i].first, 100);
    }
  }
  std::vector<TimedChoice::Times> all;
  for (const TimedChoice& way : ways) all.push_back(way.times());
  for (TimedChoice& way : ways) way.decide(all);
}

/// The decision, equal on all ranks.
bool second_is_chosen(const std::vector<Rank>& ranks) {
  std::vector<TimedChoice> ways(ranks.size());
  go_through_trials(ways, ranks);
  for (const TimedChoice& way : ways) {
    EXPECT_FALSE(way.is_trying());
    EXPECT_EQ(way.takes_second(), ways[0].takes_second());
  }
  return ways[0].takes_second();
}

TEST(TimedChoice, IsTheOneThatIsFasterForTheRankThatWaitsLeast) {
  EXPECT_TRUE(second_is_chosen({{10us, 9us}}));
  EXPECT_FALSE(second_is_chosen({{9us, 10us}}));
  EXPECT_FALSE(second_is_chosen({{9us, 10us}, {1ms, 10us}}));
  EXPECT_TRUE(second_is_chosen({{10us, 1ms}, {10us, 9us}, {10us, 1ms}}));
}

TEST(TimedChoice, IsTheOneThatIsFasterAByte) {
  TimedChoice way;
  for (size_t i = 0; i < TimedChoice::kMostTrials; ++i) way.took(10us, 1000);
  for (size_t i = 0; i < TimedChoice::kMostTrials; ++i) way.took(9us, 500);
  way.decide(std::vector{way.times()});
  EXPECT_FALSE(way.takes_second());
}

TEST(TimedChoice, StaysWithTheFirstWhereTheyAreEqual) {
  EXPECT_FALSE(second_is_chosen({{10us, 10us}, {10us, 10us}}));
}

TEST(TimedChoice, ForgivesEachWayASlowStart) {
  TimedChoice way;
  for (size_t i = 0; i < TimedChoice::kSettling.calls; ++i) way.took(1us, 100);
  for (size_t i = 0; i < TimedChoice::kTimed.calls; ++i) way.took(10us, 100);
  ASSERT_TRUE(way.takes_second());
  for (size_t i = 0; i < TimedChoice::kSettling.calls; ++i) way.took(1s, 100);
  for (size_t i = 0; i < TimedChoice::kTimed.calls; ++i)
    EXPECT_EQ(way.took(9us, 100), i + 1 == TimedChoice::kTimed.calls);
  way.decide(std::vector{way.times()});
  EXPECT_TRUE(way.takes_second());
}

/// Number of trial calls of the first and the second algorithm.
std::pair<size_t, size_t> calls_of_each(size_t bytes) {
  TimedChoice way;
  std::pair<size_t, size_t> calls;
  while (way.is_trying()) {
    ++(way.takes_second() ? calls.second : calls.first);
    way.took(1ms, bytes);
  }
  return calls;
}

TEST(TimedChoice, TriesFewerCallsWhereTheyAreLong) {
  constexpr size_t kAll = TimedChoice::kMostTrials;
  EXPECT_EQ(calls_of_each(256 * KiB), std::pair(kAll, kAll));
  EXPECT_EQ(calls_of_each(2 * MiB), std::pair(size_t{4 + 8}, size_t{4 + 8}));
  constexpr size_t kLeast = TimedChoice::kSettling.least + TimedChoice::kTimed.least;
  EXPECT_EQ(calls_of_each(16 * MiB), std::pair(kLeast, kLeast));
}

TEST(TimedChoice, ForgivesASlowStartOfLongCallsToo) {
  TimedChoice way;
  for (const auto& [slow, then] : {std::pair{1us, 10ms}, std::pair{1000'000us, 9ms}}) {
    for (size_t i = 0; i < TimedChoice::kSettling.least; ++i) way.took(slow, 16 * MiB);
    for (size_t i = 0; i < TimedChoice::kTimed.least; ++i) way.took(then, 16 * MiB);
  }
  ASSERT_FALSE(way.is_trying());
  way.decide(std::vector{way.times()});
  EXPECT_TRUE(way.takes_second());
}

TEST(TimedChoice, IsLookedForAgainAfterManyCalls) {
  std::vector<TimedChoice> ways(1);
  go_through_trials(ways, {{2us, 1us}});
  for (size_t i = 0; i < TimedChoice::kKept; ++i) {
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
