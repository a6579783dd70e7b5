// Whole jobs with all features at once.
#include "core/sim/world_program.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "core/sim/seeds.h"
#include "core/sim/world_run.h"

namespace hvd::sim {
namespace {

/// Runs a seed and returns the failure, if any.
std::optional<std::string> run_seed(uint64_t seed, WorldCensus& census) {
  WorldProgram program = draw_program(seed);
  const WorldRun run = run_program(program, seed);
  census.add(program.census);
  return run.failure;
}

TEST(WorldProgram, EveryOperationGivesWhatTheReferenceGivesAndNobodyHangs) {
  WorldCensus census;
  const std::vector<uint64_t> list = seeds(1500);
  for (const uint64_t seed : list) {
    const auto failure = run_seed(seed, census);
    ASSERT_FALSE(failure) << "HVD_SIM_FROM=" << seed << " HVD_SIM_SEEDS=1: " << *failure;
  }
  fmt::print("{:>12} seeds\n{}", list.size(), census.text());
}

// The seeds test only the features that they contain.
TEST(WorldProgram, MixesEveryIngredient) {
  WorldCensus census;
  for (uint64_t seed = 1; seed <= 200; ++seed) run_seed(seed, census);
  for (size_t i = 0; i < kWorldIngredients; ++i) {
    const auto ingredient = static_cast<WorldIngredient>(i);
    EXPECT_TRUE(census.has(ingredient)) << name_of(ingredient);
  }
}

TEST(WorldProgram, IsTheSameRunForTheSameSeed) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    WorldProgram first = draw_program(seed), second = draw_program(seed);
    ASSERT_EQ(run_program(first, seed).digest, run_program(second, seed).digest) << "seed " << seed;
  }
}

}  // namespace
}  // namespace hvd::sim
