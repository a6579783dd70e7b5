#include "core/backend/host/plans.h"

#include <gtest/gtest.h>

#include "core/base/bytes.h"
#include "core/sim/network.h"

namespace hvd {
namespace {

sim::Network host_of(int size) {
  return sim::Network(size, 1, {.unit_bytes = 256 * KiB, .shared_memory = true});
}

TEST(Plans, AreMadeOncePerKindGroupTypeAndBytes) {
  sim::Network pair = host_of(2), three = host_of(3);
  Plans plans;
  const PassKind sum{OperationKind::allreduce};
  const auto first = plans.plan_of(sum, pair.group(0), DType::float32, {1000});
  EXPECT_EQ(plans.plan_of(sum, pair.group(0), DType::float32, {1000}), first);
  EXPECT_EQ(plans.plan_of(sum, pair.group(0), DType::int32, {1000}), first);  // as wide
  EXPECT_NE(plans.plan_of(sum, pair.group(0), DType::float64, {1000}), first);
  EXPECT_NE(plans.plan_of(sum, pair.group(0), DType::float32, {1004}), first);
  EXPECT_NE(plans.plan_of(sum, pair.group(1), DType::float32, {1000}), first);
  EXPECT_NE(plans.plan_of(sum, three.group(0), DType::float32, {1000}), first);
  const AllreduceRules by_ring{.choice = AlgorithmChoice::ring};
  EXPECT_NE(
      plans.plan_of({OperationKind::allreduce, by_ring}, pair.group(0), DType::float32, {1000}),
      first);
  const auto from_0 =
      plans.plan_of({.kind = OperationKind::broadcast}, pair.group(0), DType::float32, {1000});
  const auto from_1 = plans.plan_of({.kind = OperationKind::broadcast, .root = 1}, pair.group(0),
                                    DType::float32, {1000});
  EXPECT_NE(from_0->schedule, from_1->schedule);
}

TEST(Plans, ForgetTheOldestAndKeepNoGiants) {
  sim::Network pair = host_of(2);
  Plans plans;
  const PassKind sum{OperationKind::allreduce};
  const std::weak_ptr<const Plan> first = plans.plan_of(sum, pair.group(0), DType::float32, {4});
  for (size_t bytes = 8; !first.expired(); bytes += 4) {
    ASSERT_LT(bytes, 1000u);
    plans.plan_of(sum, pair.group(0), DType::float32, {bytes});
  }
  sim::Network many = host_of(17);
  const std::weak_ptr<const Plan> giant = plans.plan_of(
      {OperationKind::alltoall}, many.group(0), DType::float32, Blocks(size_t{17 * 17}, size_t{4}));
  EXPECT_TRUE(giant.expired());
}

TEST(Plans, CutWhatIsReadAgainIntoPiecesThatStayInTheCache) {
  sim::Network pair = host_of(2);
  Plans plans;
  const auto segment = [&](size_t bytes) {
    return plans.plan_of({OperationKind::allreduce}, pair.group(0), DType::float32, {bytes})
        ->layout.extent(0, 0)
        .bytes;
  };
  EXPECT_EQ(segment(64 * MiB), 128 * KiB);  // one chunk, reduced at once
  EXPECT_EQ(segment(1 * MiB), 128 * KiB);   // one of two
}

}  // namespace
}  // namespace hvd
