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

/// Runs a seed and returns the failure, if any.
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

/// What the seeds contained that EveryRankRunsTheSameAndNobodyHangs has run; the number of the next
/// seed.
struct Ran {
  Census census;
  uint64_t next_seed = 0;
};

Ran& ran() {
  static Ran ran;
  return ran;
}

TEST(NegotiationSim, EveryRankRunsTheSameAndNobodyHangs) {
  const std::vector<uint64_t> list = seeds(5'000);
  Census& census = ran().census;
  ran().next_seed = list.back() + 1;
  for (const uint64_t seed : list) {
    const auto failure = run_seed(seed, {}, census);
    ASSERT_FALSE(failure) << replay(seed, "NegotiationSim.EveryRank*") << "\n" << *failure;
  }
  fmt::print("{:>12} seeds\n{}", list.size(), census.text());
}

std::vector<std::string> missing_in(const Census& census) {
  std::vector<std::string> missing;
  for (size_t i = 0; i < kIngredients; ++i) {
    const auto ingredient = static_cast<Ingredient>(i);
    if (!census.has(ingredient)) missing.emplace_back(name_of(ingredient));
  }
  return missing;
}

// The seeds test only the features that they contain. Goes on from those that have been run: slow
// builds run fewer.
TEST(NegotiationSim, MixesEveryIngredient) {
  constexpr uint64_t kEnough = 1000;
  Census census = ran().census;
  const uint64_t first = ran().next_seed;
  for (uint64_t seed = first; seed < first + kEnough && !missing_in(census).empty(); ++seed)
    run_seed(seed, {}, census);
  EXPECT_EQ(missing_in(census), std::vector<std::string>());
}

TEST(NegotiationSim, IsTheSameRunForTheSameSeed) {
  for (const uint64_t seed : seeds(100)) {
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
  for (const uint64_t seed : seeds(2)) {
    const auto failure = run_seed(seed, {.large_hosts = 64}, census);
    ASSERT_FALSE(failure) << *failure;
  }
}

class WithoutARule : public testing::TestWithParam<Without> {};

// Tests the simulator itself: it must detect every violated rule.
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
