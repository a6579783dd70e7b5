#include "core/collective/selector.h"

#include <gtest/gtest.h>

#include <array>

#include "core/base/bytes.h"

namespace hvd {
namespace {

constexpr GroupFacts kHost{.rank = 1, .size = 4, .shared_memory = true};
constexpr GroupFacts kLinks{.rank = 1, .size = 4, .shared_memory = false};

size_t phases(const Schedule& schedule) { return schedule.phases.size(); }

TEST(Selector, SmallPayloadsTakeFewPhases) {
  constexpr AllreduceRules kAutomatic{};
  EXPECT_EQ(phases(choose_allreduce(kHost, 4, kAutomatic)), 1u);        // one shot
  EXPECT_EQ(phases(choose_allreduce(kHost, 1 * MiB, kAutomatic)), 2u);  // direct
  EXPECT_EQ(choose_allreduce(kLinks, 4, kAutomatic).chunks, 1);         // recursive doubling
  EXPECT_EQ(phases(choose_allreduce(kLinks, 4, kAutomatic)), 2u);
  EXPECT_EQ(choose_allreduce(kLinks, 1 * MiB, kAutomatic).chunks, 4);  // halves, then ring
  EXPECT_EQ(phases(choose_allreduce(kLinks, 1 * MiB, kAutomatic)), 4u);
  EXPECT_EQ(phases(choose_allreduce(kLinks, 8 * MiB, kAutomatic)), 6u);
}

TEST(Selector, AScheduleSaysItsAlgorithm) {
  EXPECT_EQ(choose_allreduce(kHost, 4, {}).algorithm, Algorithm::one_shot);
  EXPECT_EQ(choose_allreduce(kHost, 1 * MiB, {}).algorithm, Algorithm::direct);
  EXPECT_EQ(choose_allreduce(kLinks, 8 * MiB, {}).algorithm, Algorithm::ring);
  EXPECT_EQ(choose_allreduce(kLinks, 8 * MiB, {.choice = AlgorithmChoice::tree}).algorithm,
            Algorithm::tree);
  EXPECT_EQ(choose_broadcast(kLinks, 1 * MiB, 0).algorithm, Algorithm::binomial);
  EXPECT_EQ(choose_alltoall(kLinks).algorithm, Algorithm::direct);
}

struct Chosen {
  AlgorithmChoice choice;
  Schedule (*make)(int rank, int size);
  bool deterministic;  ///< bitwise reproducible
};
constexpr std::array kChosen = {
    Chosen{AlgorithmChoice::direct, direct_allreduce, true},
    Chosen{AlgorithmChoice::ring, ring_allreduce, false},
    Chosen{AlgorithmChoice::recursive_doubling, recursive_doubling_allreduce, false},
    Chosen{AlgorithmChoice::halving_doubling, halving_doubling_allreduce, false},
    Chosen{AlgorithmChoice::tree, tree_allreduce, false},
    Chosen{AlgorithmChoice::parameter_server, parameter_server_allreduce, true},
};
constexpr std::array kSomeBytes = {size_t{4}, 4 * KiB, 64 * KiB, 1 * MiB, 1 * GiB};

TEST(Selector, TheKnobOverridesEverywhere) {
  for (const Chosen& chosen : kChosen)
    for (const GroupFacts& group : {kHost, kLinks})
      for (const size_t bytes : kSomeBytes)
        EXPECT_EQ(choose_allreduce(group, bytes, {.choice = chosen.choice}),
                  chosen.make(group.rank, group.size));
}

TEST(Selector, DeterministicTakesOnlyWhatReducesAllRanksInOneGo) {
  for (const GroupFacts& group : {kHost, kLinks, GroupFacts{.rank = 1, .size = 2000}})
    for (const size_t bytes : kSomeBytes) {
      for (const Chosen& chosen : kChosen) {
        const Schedule made =
            choose_allreduce(group, bytes, {.choice = chosen.choice, .deterministic = true});
        const Schedule left = choose_allreduce(group, bytes, {.deterministic = true});
        EXPECT_EQ(made, chosen.deterministic ? chosen.make(group.rank, group.size) : left);
      }
      const Schedule left = choose_allreduce(group, bytes, {.deterministic = true});
      EXPECT_TRUE(left == direct_allreduce(group.rank, group.size) ||
                  left == one_shot_allreduce(group.rank, group.size));
    }
}

TEST(Selector, WhoIsOverruledIsToldWhatToChoose) {
  for (const Chosen& chosen : kChosen) {
    EXPECT_EQ(warning_of_choice({.choice = chosen.choice}), "");
    EXPECT_EQ(warning_of_choice({.choice = chosen.choice, .deterministic = true}).empty(),
              chosen.deterministic);
  }
  EXPECT_EQ(warning_of_choice({.deterministic = true}), "");
  const auto warning = warning_of_choice({.choice = AlgorithmChoice::ring, .deterministic = true});
  EXPECT_NE(warning.find("HOROVOD_ALLREDUCE_ALGORITHM=ring has no effect"), std::string::npos);
}

TEST(Selector, SharedMemoryIsReadDirectly) {
  EXPECT_EQ(phases(choose_allgather(kHost, 1 * MiB)), 1u);
  EXPECT_EQ(phases(choose_allgather(kLinks, 1 * MiB)), 3u);
  EXPECT_EQ(phases(choose_broadcast(kHost, 64 * MiB, 0)), 1u);
  EXPECT_EQ(phases(choose_broadcast(kLinks, 1 * MiB, 0)), 2u);
  for (const GroupFacts& group : {kHost, kLinks}) {
    EXPECT_EQ(choose_reducescatter(group), direct_reducescatter(1, 4));
    EXPECT_EQ(choose_alltoall(group), direct_alltoall(1, 4));
  }
}

TEST(Selector, ALongBroadcastBetweenHostsIsAChain) {
  const auto chosen = [](GroupFacts group, size_t bytes) {
    return choose_broadcast(group, bytes, 0).algorithm;
  };
  EXPECT_EQ(chosen(kLinks, 8 * MiB), Algorithm::ring);
  EXPECT_EQ(chosen({.size = 2}, 8 * MiB), Algorithm::binomial);
  EXPECT_EQ(chosen({.size = 64}, 8 * MiB), Algorithm::binomial);
  EXPECT_EQ(chosen({.size = 4, .on_one_machine = true}, 8 * MiB), Algorithm::binomial);
}

TEST(Selector, OverLinksFewBytesTakeFewPhases) {
  const auto chosen = [](int size, size_t bytes) {
    return choose_allreduce({.rank = 1, .size = size, .shared_memory = false}, bytes, {});
  };
  EXPECT_EQ(chosen(2, 1 * MiB), recursive_doubling_allreduce(1, 2));
  EXPECT_EQ(chosen(2, 4 * MiB), ring_allreduce(1, 2));
  EXPECT_EQ(chosen(4, 8), recursive_doubling_allreduce(1, 4));
  EXPECT_EQ(chosen(4, 1 * MiB), halving_doubling_allreduce(1, 4));
  EXPECT_EQ(chosen(4, 64 * MiB), ring_allreduce(1, 4));
  const GroupFacts near{.rank = 1, .size = 4, .on_one_machine = true};
  EXPECT_EQ(choose_allreduce(near, 64 * MiB, {}), halving_doubling_allreduce(1, 4));
  EXPECT_EQ(chosen(6, 1 * MiB), ring_allreduce(1, 6));  // not a power of two
  EXPECT_EQ(choose_allgather(kLinks, 128 * KiB), recursive_doubling_allgather(1, 4));
  EXPECT_EQ(choose_allgather(kLinks, 128 * KiB + 1), ring_allgather(1, 4));
  EXPECT_EQ(choose_allgather({.rank = 1, .size = 6}, 16), ring_allgather(1, 6));
}

TEST(Selector, WhereRanksShareCoresFewBytesTakeFewMessages) {
  const GroupFacts crowd{.rank = 1, .size = 4, .on_one_machine = true, .ranks_a_core = 2};
  EXPECT_EQ(choose_allreduce(crowd, 8, {}), folded_allreduce(1, 4, 2));
  EXPECT_EQ(choose_allreduce(crowd, 1 * MiB, {}), folded_allreduce(1, 4, 2));
  EXPECT_EQ(choose_allreduce(crowd, 4 * MiB, {}), halving_doubling_allreduce(1, 4));
  EXPECT_EQ(choose_allreduce(crowd, 8, {.deterministic = true}), one_shot_allreduce(1, 4));
  EXPECT_EQ(choose_allreduce(crowd, 8, {.choice = AlgorithmChoice::ring}), ring_allreduce(1, 4));
  const GroupFacts four_a_core{.rank = 1, .size = 8, .on_one_machine = true, .ranks_a_core = 4};
  EXPECT_EQ(choose_allreduce(four_a_core, 256 * KiB, {}), folded_allreduce(1, 8, 4));
  EXPECT_EQ(choose_allreduce(four_a_core, 1 * MiB, {}), halving_doubling_allreduce(1, 8));
  const GroupFacts four_cores{.rank = 1, .size = 8, .on_one_machine = true, .ranks_a_core = 2};
  EXPECT_EQ(choose_allreduce(four_cores, 64 * KiB, {}), folded_allreduce(1, 8, 2));
  EXPECT_EQ(choose_allreduce(four_cores, 128 * KiB, {}), halving_doubling_allreduce(1, 8));
  const GroupFacts pair{.rank = 1, .size = 2, .on_one_machine = true, .ranks_a_core = 2};
  EXPECT_EQ(choose_allreduce(pair, 8, {}), recursive_doubling_allreduce(1, 2));
}

TEST(Selector, RankDecidesItsPartNotTheChoice) {
  for (const size_t bytes : {size_t{4}, 4 * KiB, 64 * KiB, 1 * MiB})
    for (const bool shared : {false, true})
      for (int rank = 1; rank < 5; ++rank) {
        const GroupFacts first{.rank = 0, .size = 5, .shared_memory = shared};
        const GroupFacts other{.rank = rank, .size = 5, .shared_memory = shared};
        const auto a = choose_allreduce(first, bytes, {});
        const auto b = choose_allreduce(other, bytes, {});
        EXPECT_EQ(a.chunks, b.chunks);
        EXPECT_EQ(phases(a), phases(b));
      }
}

TEST(Selector, CrowdsGoRound) {
  const GroupFacts crowd{.rank = 0, .size = 2000, .shared_memory = true};
  EXPECT_GT(phases(choose_allreduce(crowd, 1 * MiB, {})), 2u);
  const GroupFacts doubled{.rank = 0, .size = 2048, .shared_memory = true};
  EXPECT_EQ(choose_allgather(doubled, 8), ring_allgather(0, 2048));
}

TEST(Selector, TheTableNamesEveryAlgorithm) {
  const std::string table = describe_choices();
  for (const char* name : {"one_shot", "direct", "ring", "recursive_doubling", "folded", "binomial",
                           "reducescatter", "alltoall"})
    EXPECT_NE(table.find(name), std::string::npos) << name;
}

}  // namespace
}  // namespace hvd
