// Which allreduces use reduce-scatter + allgather. one_shot_call_test.cc tests the results.
#include "core/blocking/reduce_scatter_allgather_call.h"

#include <gtest/gtest.h>

#include "core/base/bytes.h"

namespace hvd {
namespace {

TEST(ReduceScatterAllgatherCall, SuitsWhereMuchIsAdded) {
  const auto suits = [](DType type, size_t bytes, int ranks, bool spare_cores = false) {
    return ReduceScatterAllgatherCall::suits(
        {.operation = {.dtype = type}, .rows = bytes, .row_bytes = 1}, ranks, spare_cores);
  };
  for (const bool spare_cores : {false, true}) {
    EXPECT_FALSE(suits(DType::float32, 512 * KiB, 2, spare_cores));
    EXPECT_FALSE(suits(DType::bfloat16, 32 * KiB, 2, spare_cores));
  }
  EXPECT_TRUE(suits(DType::float32, 4 * KiB, 4, true));
  EXPECT_FALSE(suits(DType::float32, 2 * KiB, 4, true));
  EXPECT_TRUE(suits(DType::float16, 4 * KiB, 4, true));
  EXPECT_FALSE(suits(DType::float16, 2 * KiB, 4, true));
  EXPECT_TRUE(suits(DType::float32, 128 * KiB, 3));
  EXPECT_FALSE(suits(DType::float32, 64 * KiB, 3));
  EXPECT_TRUE(suits(DType::float16, 64 * KiB, 3));
  EXPECT_FALSE(suits(DType::float16, 32 * KiB, 3));
  EXPECT_TRUE(suits(DType::bfloat16, 64 * KiB, 2));
  EXPECT_FALSE(ReduceScatterAllgatherCall::suits(
      {.operation = {.kind = OperationKind::reducescatter, .dtype = DType::float32},
       .rows = MiB,
       .row_bytes = 1},
      8, true));
}

}  // namespace
}  // namespace hvd
