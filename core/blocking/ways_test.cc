// The algorithm of a task, by the properties of its group.
#include "core/blocking/ways.h"

#include <gtest/gtest.h>

#include "core/backend/host/testing.h"
#include "core/base/error.h"

namespace hvd::test {
namespace {

struct Situation {
  std::vector<int> ranks_per_host;
  Ways::Rules rules{};
};

TensorTask sum_of(size_t bytes, DType dtype = DType::float32) {
  return {.operation = {.dtype = dtype}, .rows = bytes / 4, .row_bytes = 4};
}

TensorTask moving(OperationKind kind, size_t bytes) {
  return {.operation = {.kind = kind}, .rows = bytes, .row_bytes = 1};
}

Ways::Choice choice(const Situation& situation, const TensorTask& task) {
  Job job({.ranks_per_host = situation.ranks_per_host, .eager_bytes = 128 * KiB});
  HostBackend backend({});
  return Ways(job.groups(0), backend, situation.rules).choose(task);
}

TEST(Ways, InSharedMemorySmallTasksAreOneShot) {
  for (const OperationKind kind :
       {OperationKind::allreduce, OperationKind::allgather, OperationKind::broadcast,
        OperationKind::alltoall, OperationKind::reducescatter}) {
    const Ways::Choice made = choice({{2}}, moving(kind, 1024));
    EXPECT_EQ(made.way, Way::one_shot);
    EXPECT_FALSE(made.rival);
  }
}

TEST(Ways, LargeOnesInSharedMemoryAreTimedBesideCrossMemoryAttach) {
  const Ways::Choice medium = choice({{2}}, sum_of(16 * KiB));
  EXPECT_EQ(medium.way, Way::one_shot);
  EXPECT_EQ(medium.rival, Way::cross_memory);
  const Ways::Choice large = choice({{2}}, sum_of(4 * MiB));
  EXPECT_EQ(large.way, Way::executor);
  EXPECT_EQ(large.rival, Way::cross_memory);
  const Ways::Choice huge = choice({{2}}, sum_of(64 * MiB));
  EXPECT_EQ(huge.way, Way::executor);
  EXPECT_FALSE(huge.rival);
  TensorTask scaled = sum_of(16 * KiB);
  scaled.operation.prescale = 2.0;
  EXPECT_FALSE(choice({{2}}, scaled).rival);
}

TEST(Ways, AnAllreduceOfManyRanksDependsOnTheCores) {
  const TensorTask task = sum_of(32 * KiB);
  EXPECT_EQ(choice({{4}, {.spare_cores = false}}, task).way, Way::self_scheduled);
  EXPECT_EQ(choice({{4}, {.spare_cores = true}}, task).way, Way::reduce_scatter_allgather);
  EXPECT_EQ(choice({{4}, {.spare_cores = false}}, sum_of(64)).way, Way::one_shot);
}

TEST(Ways, OverLinksTheyFollowFromRanksAndBytes) {
  EXPECT_EQ(choice({{1, 1}}, sum_of(8)).way, Way::one_shot_links);
  EXPECT_EQ(choice({{1, 1, 1, 1}}, sum_of(8)).way, Way::phased_links);
  EXPECT_EQ(choice({{1, 1, 1, 1}}, moving(OperationKind::alltoall, 8)).way, Way::one_shot_links);
  EXPECT_EQ(choice({{1, 1, 1, 1}}, moving(OperationKind::allgather, 8)).way, Way::executor);
  EXPECT_EQ(choice({{1, 1}}, sum_of(64 * MiB)).way, Way::executor);
  EXPECT_FALSE(choice({{1, 1}}, sum_of(64 * KiB)).rival);
}

TEST(Ways, AChosenAlgorithmIsTheExecutors) {
  const Situation chosen{{2}, {.allreduce_chosen = true}};
  EXPECT_EQ(choice(chosen, sum_of(8)).way, Way::executor);
  EXPECT_EQ(choice(chosen, moving(OperationKind::broadcast, 8)).way, Way::one_shot);
}

TEST(Ways, MayBeExcluded) {
  const uint32_t no_one_shot = ~(1U << static_cast<int>(Way::one_shot));
  EXPECT_EQ(choice({{2}, {.allowed = no_one_shot}}, sum_of(8)).way, Way::executor);
  EXPECT_EQ(choice({{2}, {.allowed = 0}}, sum_of(16 * KiB)).rival, std::nullopt);
}

TEST(Ways, AreReadFromAList) {
  constexpr uint32_t kOneShot = 1U << static_cast<int>(Way::one_shot);
  constexpr uint32_t kCrossMemory = 1U << static_cast<int>(Way::cross_memory);
  EXPECT_EQ(parse_ways(""), ~0U);
  EXPECT_EQ(parse_ways("one-shot"), kOneShot);
  EXPECT_EQ(parse_ways("one-shot,cross-memory"), kOneShot | kCrossMemory);
  EXPECT_EQ(parse_ways("^cross-memory"), ~kCrossMemory);
  try {
    parse_ways("one-shot,fast");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("\"fast\""), std::string::npos);
  }
}

TEST(Ways, LimitsHoldEveryChoice) {
  for (const std::vector<int>& hosts : {std::vector{2}, {4}, {1, 1}, {1, 1, 1}, {2, 2}}) {
    Job job({.ranks_per_host = hosts, .eager_bytes = 128 * KiB});
    HostBackend backend({});
    const Ways ways(job.groups(0), backend, {});
    for (size_t bytes = 4; bytes <= 64 * MiB; bytes *= 2) {
      const TensorTask task = sum_of(bytes);
      const Ways::Choice made = ways.choose(task);
      const bool is_within = bytes <= ways.limits().of(task.operation.kind);
      EXPECT_TRUE(is_within || (made.way == Way::executor && !made.rival)) << bytes;
    }
  }
}

TEST(Ways, TheTableNamesEachWay) {
  const std::string text = Ways::describe();
  for (int i = 0; i < kWays; ++i)
    EXPECT_NE(text.find(name_of(static_cast<Way>(i))), std::string::npos);
}

}  // namespace
}  // namespace hvd::test
