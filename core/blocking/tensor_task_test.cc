#include "core/blocking/tensor_task.h"

#include <gtest/gtest.h>

#include <array>

namespace hvd {
namespace {

std::byte* memory() {
  static std::array<std::byte, 100> bytes;
  return bytes.data();
}

TensorTask task_at(OperationKind kind, size_t input, size_t output, size_t rows) {
  return {.operation = {.kind = kind, .root = 1},
          .input = memory() + input,
          .output = memory() + output,
          .rows = rows,
          .row_bytes = 1};
}

TEST(OverlapsOwnInput, IsSaidOfEverythingButATensorInPlace) {
  EXPECT_FALSE(overlaps_own_input(task_at(OperationKind::allreduce, 0, 0, 10), 0, 2));
  EXPECT_FALSE(overlaps_own_input(task_at(OperationKind::broadcast, 0, 0, 10), 1, 2));
  EXPECT_FALSE(
      overlaps_own_input(task_at(OperationKind::broadcast, 0, 5, 10), 0, 2));  // reads nothing
  EXPECT_TRUE(overlaps_own_input(task_at(OperationKind::broadcast, 0, 5, 10), 1, 2));
  EXPECT_TRUE(overlaps_own_input(task_at(OperationKind::allreduce, 0, 9, 10), 0, 2));
  EXPECT_TRUE(overlaps_own_input(task_at(OperationKind::allreduce, 9, 0, 10), 0, 2));
  EXPECT_FALSE(overlaps_own_input(task_at(OperationKind::allreduce, 10, 0, 10), 0, 2));
  EXPECT_TRUE(overlaps_own_input(task_at(OperationKind::allgather, 19, 0, 10), 0, 2));
  EXPECT_FALSE(overlaps_own_input(task_at(OperationKind::allgather, 20, 0, 10), 0, 2));
  EXPECT_TRUE(overlaps_own_input(task_at(OperationKind::alltoall, 0, 0, 10), 0, 2));
  EXPECT_TRUE(overlaps_own_input(task_at(OperationKind::reducescatter, 4, 0, 10), 0, 2));
  EXPECT_FALSE(overlaps_own_input(task_at(OperationKind::reducescatter, 5, 0, 10), 0, 2));
}

}  // namespace
}  // namespace hvd
