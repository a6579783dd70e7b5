#include "core/sim/negotiation_sim.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/sim/seeds.h"

namespace hvd::sim {
namespace {

/// What went wrong with a seed, if anything did.
std::optional<std::string> run_seed(uint64_t seed, const SimOptions& options, Census& census) {
  try {
    NegotiationSim sim(seed, options);
    sim.run();
    census.add(sim.census());
    return std::nullopt;
  } catch (const std::exception& error) {
    return error.what();
  }
}

TEST(NegotiationSim, EveryRankRunsTheSameAndNobodyHangs) {
  Census census;
  const std::vector<uint64_t> list = seeds(5'000);
  for (const uint64_t seed : list) {
    const auto failure = run_seed(seed, {}, census);
    ASSERT_FALSE(failure) << "HVD_SIM_FROM=" << seed << " HVD_SIM_SEEDS=1: " << *failure;
  }
  fmt::print("{:>12} seeds\n{}", list.size(), census.text());
}

// What the seeds do not reach, they do not test.
TEST(NegotiationSim, MixesEveryIngredient) {
  Census census;
  for (uint64_t seed = 0; seed < 1000; ++seed) run_seed(seed, {}, census);
  for (size_t i = 0; i < kIngredients; ++i) {
    const auto ingredient = static_cast<Ingredient>(i);
    EXPECT_TRUE(census.has(ingredient)) << name_of(ingredient);
  }
}

TEST(NegotiationSim, IsTheSameRunForTheSameSeed) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    NegotiationSim first(seed, {});
    NegotiationSim second(seed, {});
    first.run();
    second.run();
    ASSERT_EQ(first.digest(), second.digest()) << "seed " << seed;
  }
}

TEST(NegotiationSim, IsAnotherRunForAnotherSeed) {
  NegotiationSim first(1, {});
  NegotiationSim second(2, {});
  first.run();
  second.run();
  EXPECT_NE(first.digest(), second.digest());
}

TEST(NegotiationSim, AgreesAmong512RanksOn64Hosts) {
  Census census;
  for (uint64_t seed = 0; seed < 2; ++seed) {
    const auto failure = run_seed(seed, {.large_hosts = 64}, census);
    ASSERT_FALSE(failure) << *failure;
  }
}

class WithoutARule : public testing::TestWithParam<Without> {};

// The simulator is tested by this: were a rule not kept, it would notice.
TEST_P(WithoutARule, TheSimulatorNotices) {
  constexpr uint64_t kEnough = 2000;
  Census census;
  for (uint64_t seed = 0; seed < kEnough; ++seed) {
    if (const auto failure = run_seed(seed, {.without = GetParam()}, census)) {
      RecordProperty("seed", static_cast<int>(seed));
      RecordProperty("failure", *failure);
      return;
    }
  }
  FAIL() << "nothing fails without the rule";
}

std::vector<Without> all_rules() {
  std::vector<Without> rules;
  for (int i = 1; i <= static_cast<int>(kLastRule); ++i) rules.push_back(static_cast<Without>(i));
  return rules;
}

INSTANTIATE_TEST_SUITE_P(Agreement, WithoutARule, testing::ValuesIn(all_rules()),
                         [](const auto& rule) { return std::string(name_of(rule.param)); });

}  // namespace
}  // namespace hvd::sim
