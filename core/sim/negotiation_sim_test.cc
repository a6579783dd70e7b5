#include "core/sim/negotiation_sim.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/sim/seeds.h"

namespace hvd::sim {
namespace {

void add(Totals& sum, const Totals& run) {
  sum.operations += run.operations;
  sum.batches += run.batches;
  sum.fused += run.fused;
  sum.faults += run.faults;
  sum.joins += run.joins;
  sum.deaths += run.deaths;
  sum.shutdowns += run.shutdowns;
  sum.stalls += run.stalls;
  sum.silent += run.silent;
  sum.sets += run.sets;
  sum.duplicates += run.duplicates;
  sum.orphans += run.orphans;
  sum.retirements += run.retirements;
  sum.kept_slots = std::max(sum.kept_slots, run.kept_slots);
}

/// What went wrong with a seed, if anything did.
std::optional<std::string> run_seed(uint64_t seed, const SimOptions& options, Totals& totals) {
  try {
    NegotiationSim sim(seed, options);
    sim.run();
    add(totals, sim.totals());
    return std::nullopt;
  } catch (const std::exception& error) {
    return error.what();
  }
}

TEST(NegotiationSim, EveryRankRunsTheSameAndNobodyHangs) {
  Totals totals;
  for (const uint64_t seed : seeds(10'000)) {
    const auto failure = run_seed(seed, {}, totals);
    ASSERT_FALSE(failure) << "HVD_SIM_FROM=" << seed << " HVD_SIM_SEEDS=1: " << *failure;
  }
}

// What the seeds do not reach, they do not test.
TEST(NegotiationSim, ReachesEveryFeature) {
  Totals totals;
  for (uint64_t seed = 0; seed < 400; ++seed) run_seed(seed, {}, totals);
  EXPECT_GT(totals.batches, 0u);
  EXPECT_GT(totals.fused, 0u);
  EXPECT_GT(totals.faults, 0u);
  EXPECT_GT(totals.joins, 0u);
  EXPECT_GT(totals.deaths, 0u);
  EXPECT_GT(totals.shutdowns, 0u);
  EXPECT_GT(totals.stalls, 0u);
  EXPECT_GT(totals.silent, 0u);
  EXPECT_GT(totals.sets, 0u);
  EXPECT_GT(totals.duplicates, 0u);
  EXPECT_GT(totals.orphans, 0u);
  EXPECT_GT(totals.retirements, 0u);
  EXPECT_GT(totals.kept_slots, 0u);
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
  Totals totals;
  for (uint64_t seed = 0; seed < 2; ++seed) {
    const auto failure = run_seed(seed, {.large_hosts = 64}, totals);
    ASSERT_FALSE(failure) << *failure;
  }
}

class WithoutARule : public testing::TestWithParam<Without> {};

// The simulator is tested by this: were a rule not kept, it would notice.
TEST_P(WithoutARule, TheSimulatorNotices) {
  constexpr uint64_t kEnough = 2000;
  Totals totals;
  for (uint64_t seed = 0; seed < kEnough; ++seed) {
    if (const auto failure = run_seed(seed, {.without = GetParam()}, totals)) {
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
