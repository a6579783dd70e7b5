#include "core/collective/selector.h"

#include <gtest/gtest.h>

#include "core/base/bytes.h"

namespace hvd {
namespace {

constexpr GroupFacts kHost{.rank = 1, .size = 4, .shared_memory = true};
constexpr GroupFacts kLinks{.rank = 1, .size = 4, .shared_memory = false};

size_t phases(const Schedule& schedule) { return schedule.phases.size(); }

TEST(Selector, SmallPayloadsTakeFewPhases) {
  constexpr auto kAutomatic = AlgorithmChoice::automatic;
  EXPECT_EQ(phases(choose_allreduce(kHost, 4, kAutomatic)), 1u);        // one shot
  EXPECT_EQ(phases(choose_allreduce(kHost, 1 * MiB, kAutomatic)), 2u);  // direct
  EXPECT_EQ(choose_allreduce(kLinks, 4, kAutomatic).chunks, 1);         // recursive doubling
  EXPECT_EQ(phases(choose_allreduce(kLinks, 4, kAutomatic)), 2u);
  EXPECT_EQ(choose_allreduce(kLinks, 1 * MiB, kAutomatic).chunks, 4);  // ring
  EXPECT_EQ(phases(choose_allreduce(kLinks, 1 * MiB, kAutomatic)), 6u);
}

TEST(Selector, TheKnobOverridesEverywhere) {
  for (const GroupFacts& group : {kHost, kLinks})
    for (const size_t bytes : {size_t{4}, 1 * GiB}) {
      EXPECT_EQ(phases(choose_allreduce(group, bytes, AlgorithmChoice::direct)), 2u);
      EXPECT_EQ(phases(choose_allreduce(group, bytes, AlgorithmChoice::ring)), 6u);
      EXPECT_EQ(choose_allreduce(group, bytes, AlgorithmChoice::recursive_doubling).chunks, 1);
    }
}

TEST(Selector, SharedMemoryIsReadDirectly) {
  EXPECT_EQ(phases(choose_allgather(kHost, 1 * MiB)), 1u);
  EXPECT_EQ(phases(choose_allgather(kLinks, 1 * MiB)), 3u);
  EXPECT_EQ(phases(choose_broadcast(kHost, 1 * MiB, 0)), 1u);
  EXPECT_EQ(phases(choose_broadcast(kLinks, 1 * MiB, 0)), 2u);
}

TEST(Selector, RankDecidesItsPartNotTheChoice) {
  for (const size_t bytes : {size_t{4}, 4 * KiB, 64 * KiB, 1 * MiB})
    for (const bool shared : {false, true})
      for (int rank = 1; rank < 5; ++rank) {
        const GroupFacts first{.rank = 0, .size = 5, .shared_memory = shared};
        const GroupFacts other{.rank = rank, .size = 5, .shared_memory = shared};
        const auto a = choose_allreduce(first, bytes, AlgorithmChoice::automatic);
        const auto b = choose_allreduce(other, bytes, AlgorithmChoice::automatic);
        EXPECT_EQ(a.chunks, b.chunks);
        EXPECT_EQ(phases(a), phases(b));
      }
}

TEST(Selector, MoreRanksThanAReductionTakesGoRound) {
  const GroupFacts crowd{.rank = 0, .size = 2000, .shared_memory = true};
  EXPECT_GT(phases(choose_allreduce(crowd, 1 * MiB, AlgorithmChoice::automatic)), 2u);
}

TEST(Selector, TheTableNamesEveryAlgorithm) {
  const std::string table = describe_choices();
  for (const char* name : {"one_shot", "direct", "ring", "recursive_doubling", "binomial"})
    EXPECT_NE(table.find(name), std::string::npos) << name;
}

}  // namespace
}  // namespace hvd
