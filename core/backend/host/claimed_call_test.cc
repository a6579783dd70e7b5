// Who does the work of an allreduce. That it gives the right bits: eager_call_test.cc.
#include "core/backend/host/claimed_call.h"

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

/// One thread drives all ranks of a host, each with a tensor of its number + 1.
class ClaimedCalls : public ::testing::Test {
 protected:
  ClaimedCalls()
      : outputs_(kRanks, std::vector<float>(kElements)),
        layout_(SegmentLayout::of(kRanks, 64 * KiB, 4096).with_eager_slots()),
        memory_(layout_.total_bytes()) {
    for (int rank = 0; rank < kRanks; ++rank) {
      segments_.push_back(std::make_unique<HostSegment>(memory_.bytes(), layout_, 1, rank));
      inputs_.emplace_back(kElements, static_cast<float>(rank + 1));
    }
    for (int rank = 0; rank < kRanks; ++rank) {
      tasks_.push_back({.dtype = DType::float32,
                        .input = reinterpret_cast<const std::byte*>(inputs_[rank].data()),
                        .output = reinterpret_cast<std::byte*>(outputs_[rank].data()),
                        .rows = kElements,
                        .row_bytes = sizeof(float)});
    }
    for (int rank = 0; rank < kRanks; ++rank)
      calls_.push_back(std::make_unique<ClaimedCall>(slots(rank), tasks_[rank]));
  }

  /// As long as it gets on: what it says then, and after how many steps.
  std::pair<Run::Progress, int> drive(int rank) {
    for (int steps = 1;; ++steps) {
      const Run::Progress progress = calls_[rank]->advance();
      if (progress != Run::Progress::moved) return {progress, steps};
    }
  }
  EagerSlots& slots(int rank) const { return *segments_[rank]->eager_slots(); }
  bool has_sum(int rank) const {
    return std::ranges::all_of(outputs_[rank], [](float each) { return each == 1 + 2 + 3 + 4; });
  }

  std::vector<std::unique_ptr<ClaimedCall>> calls_;
  std::vector<std::vector<float>> outputs_;

 private:
  SegmentLayout layout_;
  SegmentMemory memory_;
  std::vector<std::unique_ptr<HostSegment>> segments_;
  std::vector<std::vector<float>> inputs_;
  std::vector<EagerTask> tasks_;
};

TEST_F(ClaimedCalls, TheOneThatHasACoreWorksForAll) {
  for (const int rank : {0, 1, 3}) EXPECT_EQ(drive(rank).first, Run::Progress::waiting) << rank;
  EXPECT_EQ(drive(2).first, Run::Progress::done);
  EXPECT_TRUE(has_sum(2));
  constexpr int kToSeeAndTake = 2;
  for (const int rank : {3, 0, 1}) {
    EXPECT_EQ(drive(rank), std::pair(Run::Progress::done, kToSeeAndTake)) << rank;
    EXPECT_TRUE(has_sum(rank));
  }
}

TEST_F(ClaimedCalls, WhatOneHasBegunAnotherOneEnds) {
  for (const int rank : {0, 1, 2}) EXPECT_EQ(drive(rank).first, Run::Progress::waiting) << rank;
  constexpr int kToPostSeeAndAddOneShare = 3;
  for (int step = 0; step < kToPostSeeAndAddOneShare; ++step)
    EXPECT_EQ(calls_[3]->advance(), Run::Progress::moved);
  for (const int rank : {1, 3, 0, 2}) {
    EXPECT_EQ(drive(rank).first, Run::Progress::done) << rank;
    EXPECT_TRUE(has_sum(rank));
  }
}

TEST_F(ClaimedCalls, WhatIsClaimedIsAwaited) {
  for (int rank = 0; rank < kRanks; ++rank)
    EXPECT_EQ(calls_[rank]->advance(), Run::Progress::moved) << "rank " << rank << " posts";
  EagerSlots& busy = slots(3);
  ASSERT_EQ(busy.claim(kShares), 0);
  for (const int rank : {0, 1, 2}) {
    EXPECT_EQ(drive(rank).first, Run::Progress::waiting) << rank;
    EXPECT_EQ(outputs_[rank], std::vector<float>(kElements)) << rank;
  }
  auto* const result = reinterpret_cast<float*>(busy.result(kElements * sizeof(float)));
  std::fill_n(result, kElements / kShares, 10.0F);
  busy.tell_made(kShares);
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(drive(rank).first, Run::Progress::done) << rank;
    EXPECT_TRUE(has_sum(rank));
  }
}

TEST(ClaimedCall, SuitsWhereRanksOutnumberCoresAndSomethingIsToBeAdded) {
  const auto suits = [](size_t bytes, int ranks, bool spare_cores = false) {
    return ClaimedCall::suits({.rows = bytes, .row_bytes = 1}, ranks, spare_cores);
  };
  EXPECT_TRUE(suits(4 * KiB, 4));
  EXPECT_FALSE(suits(2 * KiB, 4));
  EXPECT_TRUE(suits(2 * KiB, 8));
  EXPECT_FALSE(suits(64 * KiB, 3));
  EXPECT_FALSE(suits(64 * KiB, 8, true));
  EXPECT_FALSE(ClaimedCall::suits(
      {.transfer = Transfer::reducescatter, .rows = 64 * KiB, .row_bytes = 1}, 8, false));
}

}  // namespace
}  // namespace hvd
