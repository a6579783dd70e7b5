#include "core/capi/plain_request.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "core/base/bytes.h"

namespace hvd {
namespace {

constexpr size_t kMost = 64 * KiB;

/// A valid request of rank 1 of 2, to be modified by the tests.
struct Asked {
  std::vector<int64_t> shape = {4, 3};
  std::vector<float> memory = std::vector<float>(100);
  hvd_tensor input{};
  void* output = memory.data();
  hvd_request request{};

  explicit Asked(hvd_operation_kind kind) {
    request.operation.kind = kind;
    request.operation.op = HVD_SUM;
    request.operation.prescale = request.operation.postscale = 1.0;
    request.count = 1;
  }
  std::optional<TensorTask> task() {
    const int32_t count = dimensions.value_or(static_cast<int32_t>(shape.size()));
    input = {memory.data(), shape.data(), count, dtype, device, nullptr};
    request.inputs = &input;
    request.outputs = &output;
    return tensor_task_of(request, 1, 2, limits);
  }
  SizeLimits limits{.reduced = kMost / 2,
                    .gathered = kMost,
                    .broadcast = kMost,
                    .dealt = kMost,
                    .prescales = true};
  hvd_dtype dtype = HVD_FLOAT32;
  hvd_device device{};
  std::optional<int32_t> dimensions{};
};

TEST(PlainRequest, IsMadeOfOneSmallTensor) {
  for (const hvd_operation_kind kind :
       {HVD_ALLREDUCE, HVD_ALLGATHER, HVD_BROADCAST, HVD_ALLTOALL, HVD_REDUCESCATTER}) {
    const auto task = Asked(kind).task();
    ASSERT_TRUE(task) << kind;
    EXPECT_EQ(task->rows, 4u);
    EXPECT_EQ(task->row_bytes, 12u);
    EXPECT_EQ(task->operation.dtype, DType::float32);
  }
}

TEST(PlainRequest, OfAScalarHasOneRow) {
  Asked asked(HVD_ALLREDUCE);
  asked.shape.clear();
  const auto task = asked.task();
  ASSERT_TRUE(task);
  EXPECT_EQ(task->bytes(), 4u);
}

TEST(PlainRequest, IsNotMadeOfWhatIsLargeOrEmptyOrNegative) {
  const auto max = std::numeric_limits<int64_t>::max();
  const auto floats = static_cast<int64_t>(kMost / 4);
  const auto is_eager = [](hvd_operation_kind kind, std::vector<int64_t> shape) {
    Asked asked(kind);
    asked.shape = std::move(shape);
    return asked.task().has_value();
  };
  for (const std::vector<int64_t>& shape :
       std::vector<std::vector<int64_t>>{{floats + 1}, {0}, {3, 0}, {-1}, {max, max}, {2, max}})
    EXPECT_FALSE(is_eager(HVD_BROADCAST, shape)) << shape[0];
  EXPECT_TRUE(is_eager(HVD_BROADCAST, {floats}));
  EXPECT_TRUE(is_eager(HVD_ALLREDUCE, {floats / 2}));
  EXPECT_FALSE(is_eager(HVD_ALLREDUCE, {floats / 2 + 1}));
  EXPECT_TRUE(is_eager(HVD_REDUCESCATTER, {floats}));
}

TEST(PlainRequest, IsMadeOnlyWithinTheLimitOfItsKind) {
  const auto is_eager = [](hvd_operation_kind kind, size_t SizeLimits::*limit) {
    Asked asked(kind);
    asked.limits = {};
    asked.limits.*limit = kMost;
    return asked.task().has_value();
  };
  EXPECT_TRUE(is_eager(HVD_ALLREDUCE, &SizeLimits::reduced));
  EXPECT_FALSE(is_eager(HVD_ALLREDUCE, &SizeLimits::gathered));
  EXPECT_TRUE(is_eager(HVD_ALLGATHER, &SizeLimits::gathered));
  EXPECT_TRUE(is_eager(HVD_BROADCAST, &SizeLimits::broadcast));
  for (const hvd_operation_kind kind : {HVD_ALLTOALL, HVD_REDUCESCATTER}) {
    EXPECT_TRUE(is_eager(kind, &SizeLimits::dealt)) << kind;
    EXPECT_FALSE(is_eager(kind, &SizeLimits::reduced)) << kind;
  }
}

TEST(PlainRequest, HasNoPrescaleWhereThatIsRefused) {
  for (const hvd_operation_kind kind : {HVD_ALLREDUCE, HVD_REDUCESCATTER}) {
    Asked asked(kind);
    asked.limits.prescales = false;
    EXPECT_TRUE(asked.task()) << kind;
    asked.request.operation.prescale = 0.5;
    EXPECT_FALSE(asked.task()) << kind;
  }
}

TEST(PlainRequest, IsNotMadeOfWhatTheChecksMustRefuse) {
  const auto refused = [](hvd_operation_kind kind, auto change) {
    Asked asked(kind);
    change(asked);
    return !asked.task();
  };
  EXPECT_TRUE(refused(HVD_ALLREDUCE, [](Asked& a) { a.output = nullptr; }));
  EXPECT_TRUE(refused(HVD_ALLREDUCE, [](Asked& a) { a.dtype = HVD_BOOL; }));
  EXPECT_TRUE(refused(HVD_ALLREDUCE, [](Asked& a) { a.dtype = HVD_UINT16; }));
  EXPECT_TRUE(refused(HVD_ALLREDUCE, [](Asked& a) { a.device = {HVD_CUDA, 0}; }));
  EXPECT_TRUE(refused(HVD_ALLREDUCE, [](Asked& a) { a.request.operation.op = HVD_ADASUM; }));
  EXPECT_TRUE(refused(HVD_ALLREDUCE, [](Asked& a) { a.request.count = 2; }));
  EXPECT_TRUE(
      refused(HVD_ALLREDUCE, [](Asked& a) { a.request.operation.prescale = std::nan(""); }));
  EXPECT_TRUE(refused(HVD_REDUCESCATTER, [](Asked& a) { a.request.operation.op = HVD_MAX; }));
  EXPECT_TRUE(refused(HVD_REDUCESCATTER, [](Asked& a) { a.shape.clear(); }));
  EXPECT_TRUE(refused(HVD_ALLGATHER, [](Asked& a) { a.shape.clear(); }));
  EXPECT_TRUE(refused(HVD_ALLTOALL, [](Asked& a) { a.shape = {3}; }));
  EXPECT_TRUE(refused(HVD_BROADCAST, [](Asked& a) { a.request.operation.root = 2; }));
  EXPECT_TRUE(refused(HVD_BROADCAST, [](Asked& a) { a.request.operation.root = -1; }));
  EXPECT_TRUE(refused(HVD_ALLREDUCE, [](Asked& a) { a.dimensions = -1; }));
  EXPECT_TRUE(refused(HVD_ALLREDUCE, [](Asked& a) { a.shape.assign(65, 1); }));
  EXPECT_TRUE(refused(HVD_BARRIER, [](Asked&) {}));
  EXPECT_TRUE(refused(HVD_JOIN, [](Asked&) {}));
}

// All ranks must make the same decision.
TEST(PlainRequest, ARankThatGetsNoRowsNeedsNoOutput) {
  Asked asked(HVD_REDUCESCATTER);
  asked.shape = {1};
  EXPECT_TRUE(asked.task());
  asked.output = nullptr;
  EXPECT_TRUE(asked.task());
  asked.shape = {2};
  EXPECT_FALSE(asked.task());
}

}  // namespace
}  // namespace hvd
