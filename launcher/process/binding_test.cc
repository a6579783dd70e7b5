#include "launcher/process/binding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hvd::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Packages of cores with two hyperthreads each; second hyperthreads have the higher numbers.
Cores machine(int packages, int cores) {
  Cores result;
  for (int package = 0; package < packages; ++package)
    for (int core = 0; core < cores; ++core) {
      const int cpu = package * cores + core;
      result.list.push_back({.package = package * cores, .cpus = {cpu, cpu + packages * cores}});
    }
  return result;
}

std::vector<std::string> shares(const Cores& cores, int ranks) {
  std::vector<std::string> texts;
  for (const auto& cpus : bind_ranks(cores, ranks, BindingWish::cores).cpus)
    texts.push_back(cpus_text(cpus));
  return texts;
}

int threads(const Cores& cores, int ranks, BindingWish wish = BindingWish::sensible) {
  return bind_ranks(cores, ranks, wish).threads;
}

TEST(Shares, AreAllCoresWithBothHyperthreads) {
  EXPECT_THAT(shares(machine(2, 8), 2), ElementsAre("0-7,16-23", "8-15,24-31"));
  EXPECT_THAT(shares(machine(2, 8), 4),
              ElementsAre("0-3,16-19", "4-7,20-23", "8-11,24-27", "12-15,28-31"));
  EXPECT_THAT(shares(machine(1, 2), 2), ElementsAre("0,2", "1,3"));
}

TEST(Shares, DifferByOneCoreAtMost) {
  EXPECT_THAT(shares(machine(1, 8), 3), ElementsAre("0-1,8-9", "2-4,10-12", "5-7,13-15"));
  for (int cores = 2; cores < 40; ++cores)
    for (int ranks = 2; ranks <= cores; ++ranks) {
      const Binding binding = bind_ranks(machine(1, cores), ranks, BindingWish::cores);
      ASSERT_EQ(binding.cpus.size(), ranks);
      std::vector<int> times(2 * static_cast<size_t>(cores));
      size_t least = times.size(), most = 0;
      for (const auto& cpus : binding.cpus) {
        for (const int cpu : cpus) ++times[static_cast<size_t>(cpu)];
        least = std::min(least, cpus.size());
        most = std::max(most, cpus.size());
      }
      EXPECT_THAT(times, ::testing::Each(1)) << ranks << " ranks on " << cores;
      EXPECT_LE(most - least, 2) << ranks << " ranks on " << cores;
    }
}

TEST(Shares, DoNotCrossPackagesThatHaveEquallyManyRanks) {
  for (const int ranks : {2, 4, 6, 10}) {
    const Binding binding = bind_ranks(machine(2, 9), ranks, BindingWish::cores);
    for (const auto& cpus : binding.cpus) {
      int in_first = 0;
      for (const int cpu : cpus) in_first += cpu % 18 < 9 ? 1 : 0;
      EXPECT_TRUE(in_first == 0 || in_first == static_cast<int>(cpus.size())) << ranks;
    }
  }
}

TEST(Shares, AreNoneWhereARankWouldHaveNoCore) {
  const Binding binding = bind_ranks(machine(1, 2), 3, BindingWish::sensible);
  EXPECT_THAT(binding.cpus, IsEmpty());
  EXPECT_EQ(binding.why_not, "fewer than 2 cores for each of 3 ranks");
  EXPECT_EQ(binding.threads, 1);
  EXPECT_FALSE(is_refused(binding, BindingWish::sensible));
  const Binding asked = bind_ranks(machine(1, 2), 3, BindingWish::cores);
  EXPECT_EQ(asked.why_not, "too few cores: 2 for 3 ranks");
  EXPECT_TRUE(is_refused(asked, BindingWish::cores));
}

TEST(Shares, AreNoneWhereARankWouldHaveOneCoreUnlessAskedFor) {
  const Binding binding = bind_ranks(machine(1, 7), 4, BindingWish::sensible);
  EXPECT_THAT(binding.cpus, IsEmpty());
  EXPECT_EQ(binding.why_not, "fewer than 2 cores for each of 4 ranks");
  EXPECT_EQ(bind_ranks(machine(1, 7), 4, BindingWish::cores).cpus.size(), 4);
  EXPECT_EQ(bind_ranks(machine(1, 8), 4, BindingWish::sensible).cpus.size(), 4);
}

TEST(Shares, AreNoneForARankAlone) {
  const Binding binding = bind_ranks(machine(1, 8), 1, BindingWish::cores);
  EXPECT_THAT(binding.cpus, IsEmpty());
  EXPECT_EQ(binding.threads, 0);
  EXPECT_FALSE(is_refused(binding, BindingWish::cores));
}

TEST(Shares, AreNoneWhereTimeIsSharedUnlessAskedFor) {
  Cores cores = machine(1, 8);
  cores.quota = 4.5;
  const Binding binding = bind_ranks(cores, 2, BindingWish::sensible);
  EXPECT_THAT(binding.cpus, IsEmpty());
  EXPECT_EQ(binding.why_not, "a cgroup limits CPU time to 4.5 of 8 cores");
  EXPECT_EQ(bind_ranks(cores, 2, BindingWish::cores).cpus.size(), 2);
  cores.quota = 16;  // both hyperthreads of all
  EXPECT_EQ(bind_ranks(cores, 2, BindingWish::sensible).cpus.size(), 2);
}

TEST(Shares, AreNoneWhereTheUserWantsNone) {
  const Binding binding = bind_ranks(machine(1, 8), 2, BindingWish::none);
  EXPECT_THAT(binding.cpus, IsEmpty());
  EXPECT_EQ(binding.threads, 4);
}

TEST(Threads, AreAsManyAsTheSmallestShareHasCores) {
  EXPECT_EQ(threads(machine(2, 8), 4), 4);
  EXPECT_EQ(threads(machine(2, 8), 3), 5);
  EXPECT_EQ(threads(machine(1, 2), 5), 1);
}

TEST(Threads, AreNoMoreThanACgroupGrants) {
  Cores cores = machine(1, 32);
  cores.quota = 4.9;
  EXPECT_EQ(threads(cores, 2), 2);
  EXPECT_EQ(threads(cores, 2, BindingWish::cores), 2);
  EXPECT_EQ(threads(cores, 8), 1);
}

TEST(Wishes, HaveNames) {
  EXPECT_EQ(parse_wish({}), BindingWish::sensible);
  EXPECT_EQ(parse_wish({"none"}), BindingWish::none);
  EXPECT_EQ(parse_wish({"cores"}), BindingWish::cores);
  EXPECT_EQ(parse_wish({"--bind-to", "none"}), std::nullopt);
}

TEST(CpusBySlot, AreListsAsTheKernelWritesThem) {
  EXPECT_THAT(cpus_by_slot(bind_ranks(machine(1, 4), 2, BindingWish::sensible)),
              ElementsAre("0-1,4-5", "2-3,6-7"));
  EXPECT_THAT(cpus_by_slot(bind_ranks(machine(1, 1), 2, BindingWish::sensible)), IsEmpty());
}

}  // namespace
}  // namespace hvd::launcher
