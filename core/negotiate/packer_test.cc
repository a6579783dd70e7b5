#include "core/negotiate/packer.h"

#include <gtest/gtest.h>

#include "core/negotiate/testing.h"

namespace hvd {
namespace {

/// An allreduce of `bytes` bytes.
Ready ready(const std::string& name, int64_t bytes) {
  return {.signature = allreduce_of(name, {bytes / 4})};
}

Signature as_float64(Signature signature) {
  signature.operation.dtype = DType::float64;
  return signature;
}

TEST(Packer, TakesWhatFitsAndIsNotFullWhileMoreWouldFit) {
  const Cut cut = cut_batch({ready("a", 400), ready("b", 400)}, 1000);
  EXPECT_EQ(cut.taken, (std::vector<size_t>{0, 1}));
  EXPECT_EQ(cut.bytes, 800u);
  EXPECT_FALSE(cut.full);
}

TEST(Packer, IsFullWhenTheNextEqualOneDoesNotFit) {
  const Cut cut = cut_batch({ready("a", 400), ready("b", 400), ready("c", 400)}, 1000);
  EXPECT_EQ(cut.taken.size(), 2u);
  EXPECT_TRUE(cut.full);
}

TEST(Packer, IsFullAtTheThreshold) { EXPECT_TRUE(cut_batch({ready("a", 1000)}, 1000).full); }

TEST(Packer, LetsWhatIsLargerThanTheThresholdRunAlone) {
  const Cut cut = cut_batch({ready("a", 4000), ready("b", 4)}, 1000);
  EXPECT_EQ(cut.taken, std::vector<size_t>{0});
  EXPECT_TRUE(cut.full);
}

TEST(Packer, FusesNothingWithAThresholdOfZero) {
  const Cut cut = cut_batch({ready("a", 4), ready("b", 4)}, 0);
  EXPECT_EQ(cut.taken, std::vector<size_t>{0});
  EXPECT_TRUE(cut.full);
}

TEST(Packer, PassesOverWhatDoesNotFuse) {
  ReadyQueue queue{ready("a", 4), ready("other type", 4), ready("b", 4)};
  queue[1].signature = as_float64(queue[1].signature);
  EXPECT_EQ(cut_batch(queue, 1000).taken, (std::vector<size_t>{0, 2}));
}

TEST(Packer, RunsABarrierAlone) {
  ReadyQueue queue{{.signature = barrier_of("a")}, {.signature = barrier_of("b")}};
  const Cut cut = cut_batch(queue, 1000);
  EXPECT_EQ(cut.taken, std::vector<size_t>{0});
  EXPECT_TRUE(cut.full);
}

TEST(Packer, LeavesAGroupAloneThatMayNotFuse) {
  ReadyQueue queue{ready("a", 4), ready("group", 4)};
  Signature group = queue[1].signature;
  group.fuse_with_others = false;
  queue[1].signature = group;
  EXPECT_EQ(cut_batch(queue, 1000).taken, std::vector<size_t>{0});
}

TEST(Packer, DoesNotReachOverTheEndOfAJoin) {
  ReadyQueue queue{ready("a", 4), {.join_done = true, .last_joined = 1}, ready("b", 4)};
  EXPECT_EQ(cut_batch(queue, 1000).taken, std::vector<size_t>{0});
}

TEST(Packer, CountsOneRowOfAnAllgather) {
  Signature gather = allreduce_of("a", {kFreeDimension, 5});
  gather.operation.kind = OperationKind::allgather;
  EXPECT_EQ(gather.payload_bytes(), 20u);
}

TEST(Packer, TakesInOrderAndLeavesTheRestInOrder) {
  ReadyQueue queue{ready("a", 4), ready("b", 4), ready("c", 4), ready("d", 4)};
  const std::vector<SharedSignature> taken = take(queue, {.taken = {0, 2}});
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_EQ(taken[0]->name, hash_name("a"));
  EXPECT_EQ(taken[1]->name, hash_name("c"));
  ASSERT_EQ(queue.size(), 2u);
  EXPECT_EQ(queue[0].signature->name, hash_name("b"));
  EXPECT_EQ(queue[1].signature->name, hash_name("d"));
}

}  // namespace
}  // namespace hvd
