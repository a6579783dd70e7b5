// Which ranks do the work of a self-scheduled allreduce. one_shot_call_test.cc tests the results.
#include "core/blocking/self_scheduled_call.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/bytes.h"
#include "core/group/host_segment.h"
#include "core/group/segment_memory.h"

namespace hvd {
namespace {

constexpr int kRanks = 4;
constexpr size_t kElements = 4096;
constexpr int kShares = 4;  // of 4 KiB

/// One thread drives all ranks of a host. The tensor of rank r is filled with r + 1.
class SelfScheduledCalls : public ::testing::Test {
 protected:
  SelfScheduledCalls()
      : outputs_(kRanks, std::vector<float>(kElements)),
        layout_(SegmentLayout::of(kRanks, 64 * KiB, 4096).with_eager_buffers()),
        memory_(layout_.total_bytes()) {
    for (int rank = 0; rank < kRanks; ++rank) {
      segments_.push_back(std::make_unique<HostSegment>(memory_.bytes(), layout_, 1, rank));
      inputs_.emplace_back(kElements, static_cast<float>(rank + 1));
    }
    for (int rank = 0; rank < kRanks; ++rank) {
      tasks_.push_back({.operation = {.dtype = DType::float32},
                        .input = reinterpret_cast<const std::byte*>(inputs_[rank].data()),
                        .output = reinterpret_cast<std::byte*>(outputs_[rank].data()),
                        .rows = kElements,
                        .row_bytes = sizeof(float)});
    }
    for (int rank = 0; rank < kRanks; ++rank)
      calls_.push_back(std::make_unique<SelfScheduledCall>(slots(rank), tasks_[rank]));
  }

  /// Advances `rank` while it makes progress. Returns the last result and the number of steps.
  std::pair<Progress, int> drive(int rank) {
    for (int steps = 1;; ++steps) {
      const Progress progress = calls_[rank]->advance();
      if (progress != Progress::moved) return {progress, steps};
    }
  }
  EagerBuffers& slots(int rank) const { return *segments_[rank]->eager_buffers(); }
  bool has_sum(int rank) const {
    return std::ranges::all_of(outputs_[rank], [](float each) { return each == 1 + 2 + 3 + 4; });
  }

  std::vector<std::unique_ptr<SelfScheduledCall>> calls_;
  std::vector<std::vector<float>> outputs_;

 private:
  SegmentLayout layout_;
  SegmentMemory memory_;
  std::vector<std::unique_ptr<HostSegment>> segments_;
  std::vector<std::vector<float>> inputs_;
  std::vector<TensorTask> tasks_;
};

TEST_F(SelfScheduledCalls, TheOneThatHasACoreWorksForAll) {
  for (const int rank : {0, 1, 3}) EXPECT_EQ(drive(rank).first, Progress::waiting) << rank;
  EXPECT_EQ(drive(2).first, Progress::done);
  EXPECT_TRUE(has_sum(2));
  constexpr int kToSeeAndTake = 2;
  for (const int rank : {3, 0, 1}) {
    EXPECT_EQ(drive(rank), std::pair(Progress::done, kToSeeAndTake)) << rank;
    EXPECT_TRUE(has_sum(rank));
  }
}

TEST_F(SelfScheduledCalls, WhatOneHasBegunAnotherOneEnds) {
  for (const int rank : {0, 1, 2}) EXPECT_EQ(drive(rank).first, Progress::waiting) << rank;
  constexpr int kToPostSeeAndAddOneShare = 3;
  for (int step = 0; step < kToPostSeeAndAddOneShare; ++step)
    EXPECT_EQ(calls_[3]->advance(), Progress::moved);
  for (const int rank : {1, 3, 0, 2}) {
    EXPECT_EQ(drive(rank).first, Progress::done) << rank;
    EXPECT_TRUE(has_sum(rank));
  }
}

TEST_F(SelfScheduledCalls, WhatIsClaimedIsAwaited) {
  for (int rank = 0; rank < kRanks; ++rank)
    EXPECT_EQ(calls_[rank]->advance(), Progress::moved) << "rank " << rank << " posts";
  EagerBuffers& busy = slots(3);
  ASSERT_EQ(busy.claim(kShares), 0);
  for (const int rank : {0, 1, 2}) {
    EXPECT_EQ(drive(rank).first, Progress::waiting) << rank;
    EXPECT_EQ(outputs_[rank], std::vector<float>(kElements)) << rank;
  }
  auto* const result = reinterpret_cast<float*>(busy.result(kElements * sizeof(float)));
  std::fill_n(result, kElements / kShares, 10.0F);
  busy.tell_made(kShares);
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(drive(rank).first, Progress::done) << rank;
    EXPECT_TRUE(has_sum(rank));
  }
}

TEST(SelfScheduledCall, SuitsWhereRanksOutnumberCoresAndSomethingIsToBeAdded) {
  const auto suits = [](size_t bytes, int ranks, bool spare_cores = false) {
    return SelfScheduledCall::suits({.rows = bytes, .row_bytes = 1}, ranks, spare_cores);
  };
  EXPECT_TRUE(suits(4 * KiB, 4));
  EXPECT_FALSE(suits(2 * KiB, 4));
  EXPECT_TRUE(suits(2 * KiB, 8));
  EXPECT_FALSE(suits(64 * KiB, 3));
  EXPECT_FALSE(suits(64 * KiB, 8, true));
  EXPECT_FALSE(SelfScheduledCall::suits(
      {.operation = {.kind = OperationKind::reducescatter}, .rows = 64 * KiB, .row_bytes = 1}, 8,
      false));
}

}  // namespace
}  // namespace hvd
