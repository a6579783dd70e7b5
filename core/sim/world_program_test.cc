// Whole jobs with all features at once, and with faults.
#include "core/sim/world_program.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "core/sim/seeds.h"
#include "core/sim/world_run.h"

namespace hvd::sim {
namespace {

/// What the seeds contained.
struct Ran {
  WorldCensus census;
  FaultCensus faults;
  uint64_t next_seed = 0;
};

/// Of EveryOperationGivesWhatTheReferenceGivesAndNobodyHangs.
Ran& ran() {
  static Ran ran;
  return ran;
}

/// Runs a seed and returns the failure, if any.
std::optional<std::string> run_seed(uint64_t seed, Ran& ran) {
  WorldProgram program = draw_program(seed);
  const WorldRun run = run_program(program, seed);
  ran.census.add(program.census);
  ran.faults.add(program.fault_census);
  return run.failure;
}

TEST(WorldProgram, EveryOperationGivesWhatTheReferenceGivesAndNobodyHangs) {
  const std::vector<uint64_t> list = seeds(1500);
  ran().next_seed = list.back() + 1;
  for (const uint64_t seed : list) {
    const auto failure = run_seed(seed, ran());
    ASSERT_FALSE(failure) << replay(seed, "WorldProgram.EveryOperation*") << "\n" << *failure;
  }
  fmt::print("{:>12} seeds\n{}{}", list.size(), ran().census.text(), ran().faults.text());
}

/// Ingredients, and faults at moments.
std::vector<std::string> missing_in(const Ran& ran) {
  std::vector<std::string> missing;
  for (size_t i = 0; i < kWorldIngredients; ++i) {
    const auto ingredient = static_cast<WorldIngredient>(i);
    if (!ran.census.has(ingredient)) missing.emplace_back(name_of(ingredient));
  }
  for (size_t i = 1; i < kFaults; ++i) {
    for (size_t j = 0; j < kMoments; ++j) {
      const auto fault = static_cast<Fault>(i);
      const auto moment = static_cast<Moment>(j);
      if (ran.faults.of(fault, moment) == 0)
        missing.push_back(fmt::format("{} at {}", name_of(fault), name_of(moment)));
    }
  }
  return missing;
}

// The seeds test only the features that they contain. Goes on from those that have been run: slow
// builds run fewer.
/// A partition in the shutdown: two ranks give up one that the draining rank does not wait for.
TEST(WorldProgram, ARankThatDrainsHearsWhomTheOthersHaveLost) {
  constexpr uint64_t kSeed = 40632;
  Ran once;
  const auto failure = run_seed(kSeed, once);
  EXPECT_FALSE(failure) << *failure;
}

TEST(WorldProgram, MixesEveryIngredientAndEveryFaultAtEveryMoment) {
  constexpr uint64_t kEnough = 2000;
  Ran all = ran();
  for (uint64_t i = 0; i < kEnough && !missing_in(all).empty(); ++i)
    run_seed(ran().next_seed + i, all);
  EXPECT_EQ(missing_in(all), std::vector<std::string>());
}

TEST(WorldProgram, IsTheSameRunForTheSameSeed) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    WorldProgram first = draw_program(seed), second = draw_program(seed);
    ASSERT_EQ(run_program(first, seed).digest, run_program(second, seed).digest) << "seed " << seed;
  }
}

}  // namespace
}  // namespace hvd::sim
