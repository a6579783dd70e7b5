// What is limited on GPUs: memory that is allocated while they work, calls, and what NCCL may do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <vector>

#include "core/backend/nccl/devices.h"
#include "core/capi/gpu_testing.h"

namespace hvd {
namespace {

using device::test::await;
using test::gpu_job;
using test::GpuJobOptions;
using test::GpuRank;
using test::GpuRequest;
using test::Mutation;
using ::testing::Each;

class GpuLimits : public device::test::StandIn {};

/// An allreduce of tensors together, in place.
void reduce(GpuRank& rank, const std::vector<const GpuRank::Tensor<float>*>& tensors,
            hvd_reduce_op op = HVD_SUM) {
  GpuRequest request(HVD_ALLREDUCE, "x");
  request.request.operation.op = op;
  for (const auto* x : tensors)
    request.add(rank, x->data(), x->data(), HVD_FLOAT32, {static_cast<int64_t>(x->count())});
  EXPECT_EQ(rank.finish(rank.submit(request.request)), "");
}
std::vector<float> ones(size_t bytes) { return std::vector<float>(bytes / sizeof(float), 1.0f); }

// ---- memory

TEST_F(GpuLimits, NothingIsAllocatedAfterTheFirstTensor) {
  for (const auto choice : {GpuOperationsChoice::nccl, GpuOperationsChoice::host}) {
    const Mutation mutation;
    GpuJobOptions options = test::with(choice);
    options.nccl.scratch_bytes = 32 * MiB;  // the default may not fit between memory of other tests
    gpu_job(1, options, [&](GpuRank& rank) {
      auto x = rank.tensor<float>(ones(100)), y = rank.tensor<float>(ones(3 * MiB));
      auto z = rank.tensor<float>(ones(9 * MiB));
      reduce(rank, {&x});
      mutation.begin("cuMemAlloc_v2=2,cuMemHostAlloc=2");
      reduce(rank, {&x, &y, &z});
      EXPECT_THAT(x.read(), Each(1.0f));
      EXPECT_THAT(z.read(), Each(1.0f));
    });
  }
}

TEST_F(GpuLimits, MemoryThatIsNotAvailableIsNotReserved) {
  const Mutation mutation;
  gpu_job(1, test::with(GpuOperationsChoice::nccl), [&](GpuRank& rank) {
    auto x = rank.tensor<float>(ones(100)), y = rank.tensor<float>(ones(100));
    mutation.begin("cuMemAlloc_v2=2");
    reduce(rank, {&x});
    EXPECT_EQ(counters_of(rank).device_bytes, 0u);
    mutation.begin("");
    reduce(rank, {&x, &y});
    EXPECT_THAT(x.read(), Each(1.0f));
    EXPECT_THAT(y.read(), Each(1.0f));
    EXPECT_EQ(counters_of(rank).device_bytes, 256u);
  });
}

/// The driver waits for work of the GPU when it frees, also for that of the framework.
TEST_F(GpuLimits, ScratchMemoryThatIsTooSmallIsKeptUntilTheEnd) {
  GpuJobOptions options = test::with(GpuOperationsChoice::nccl);
  options.nccl.scratch_bytes = 1024;
  gpu_job(1, options, [](GpuRank& rank) {
    auto x = rank.tensor<float>(ones(8192)), y = rank.tensor<float>(ones(8192));
    GpuRequest request(HVD_ALLREDUCE, "x");  // both outputs are x, which needs private ones
    request.add(rank, x.data(), x.data(), HVD_FLOAT32, {2048});
    request.add(rank, y.data(), x.data(), HVD_FLOAT32, {2048});
    EXPECT_EQ(rank.finish(rank.submit(request.request)), "");
    EXPECT_THAT(x.read(), Each(1.0f));
    EXPECT_EQ(counters_of(rank).device_bytes, 1024u + 16384u);  // the first, and the larger one
    y.read();
  });
}

/// Memory of a framework in which an output lies.
struct Block {
  static const char* allocate(void* owner, int32_t, const int64_t*, int32_t, hvd_tensor* output) {
    const auto& self = *static_cast<Block*>(owner);
    output->data = self.output;
    output->stream = self.stream;
    return nullptr;
  }
  float* output = nullptr;
  void* stream = nullptr;
};

/// The input lies behind the output, which is not twice as large on rank 0.
TEST_F(GpuLimits, AnOutputOfRowsThatDifferNeedsNoPrivateMemory) {
  constexpr int64_t kOutput = 3001, kInput = 3000;
  GpuJobOptions options = test::with(GpuOperationsChoice::nccl);
  options.nccl.scratch_bytes = 1024;
  gpu_job(2, options, [](GpuRank& rank) {
    auto x = rank.tensor<float>(std::vector<float>(kOutput + kInput, 1.0f));
    Block block{x.data(), rank.framework().stream()};
    GpuRequest gather(HVD_ALLGATHER, "x");
    gather.add(rank, x.data() + kOutput, x.data(), HVD_FLOAT32, {rank.rank() == 0 ? kInput : 1});
    gather.request.outputs = nullptr;
    gather.request.allocate = &Block::allocate;
    gather.request.owner = &block;
    const auto gathered = rank.submit(gather.request);
    EXPECT_EQ(rank.finish(gathered), "");
    EXPECT_THAT(x.read(), Each(1.0f));
    await([&] { return gathered->result->reached(); });
    EXPECT_EQ(counters_of(rank).device_bytes, 1024u);
  });
}

TEST_F(GpuLimits, PinnedMemoryOfOneSizeLeavesRoomForOthers) {
  nccl::Devices devices({}, GpuOperationsChoice::nccl);
  const auto gpu = devices.use(0);
  const nccl::OnGpu current(gpu->context());
  using Taken = std::vector<std::shared_ptr<device::PinnedMemory>>;
  const auto take_all = [&](size_t bytes) {
    Taken taken;
    while (auto one = gpu->take_pinned(bytes, nccl::PinnedLimit::most)) taken.push_back(one);
    return taken;
  };
  EXPECT_EQ(take_all(1).size(), nccl::Gpu::kMostPinnedBytes / (64 * KiB));
  EXPECT_EQ(gpu->own_buffers().pinned, nccl::Gpu::kMostPinnedBytes);
  EXPECT_EQ(take_all(nccl::kSegmentBytes).size(), nccl::Gpu::kPinnedPlaces);
  EXPECT_EQ(gpu->own_buffers().pinned,
            nccl::Gpu::kMostPinnedBytes + nccl::Gpu::kPinnedPlaces * nccl::kSegmentBytes);
  const Taken small = take_all(1);
  EXPECT_GT(small.size(), nccl::Gpu::kMostPinnedBytes / (64 * KiB)) << "larger ones, too";
}

// ---- calls

TEST_F(GpuLimits, ARankThatHasJoinedFillsItsPartByFewCalls) {
  for (const auto& [op, fails] :
       {std::pair(HVD_SUM, "cuMemcpyAsync=1"), std::pair(HVD_PRODUCT, "cuMemcpyAsync=1@20")}) {
    const Mutation mutation;
    gpu_job(2, test::with(GpuOperationsChoice::nccl), [&, op = op, fails = fails](GpuRank& rank) {
      auto x = rank.tensor<float>(std::vector<float>(4 * MiB / sizeof(float), 3.0f));
      auto y = rank.tensor<float>({3});
      reduce(rank, {&y}, HVD_MAX);
      if (rank.rank() == 0) {
        mutation.begin(fails);
        reduce(rank, {&x}, op);
        reduce(rank, {&x, &y}, op);
      }
      hvd_request join{};
      join.operation.kind = HVD_JOIN;
      EXPECT_EQ(rank.finish(rank.submit(join)), "");
      EXPECT_THAT(x.read(), Each(3.0f));
      EXPECT_THAT(y.read(), Each(3.0f));
    });
  }
}

TEST_F(GpuLimits, ABroadcastMayHaveMoreTensorsThanAGroupOfNcclHasCalls) {
  constexpr size_t kTensors = 2100;
  gpu_job(2, test::with(GpuOperationsChoice::nccl), [](GpuRank& rank) {
    std::vector<float> values(kTensors, 0.0f);
    if (rank.rank() == 0) std::iota(values.begin(), values.end(), 1.0f);
    auto x = rank.tensor<float>(values);
    GpuRequest request(HVD_BROADCAST, "x");
    for (size_t i = 0; i < kTensors; ++i)
      request.add(rank, x.data() + i, x.data() + i, HVD_FLOAT32, {1});
    EXPECT_EQ(rank.finish(rank.submit(request.request)), "");
    const std::vector<float> read = x.read();
    EXPECT_EQ(read.front(), 1.0f);
    EXPECT_EQ(read.back(), static_cast<float>(kTensors));
  });
}

// ---- the order of sums

TEST_F(GpuLimits, SumsAreInTheOrderOfRanksIfTheyMustBe) {
  for (const int ranks : {2, 3}) {
    GpuJobOptions options = test::with(GpuOperationsChoice::nccl);
    options.nccl.deterministic = true;
    gpu_job(ranks, options, [ranks](GpuRank& rank) {
      auto x = rank.tensor<float>({1});
      reduce(rank, {&x});
      EXPECT_EQ(batches_by(rank, ranks == 2 ? Mover::nccl : Mover::staged), 1u);
      reduce(rank, {&x}, HVD_MAX);
      EXPECT_EQ(batches_by(rank, Mover::nccl), ranks == 2 ? 2u : 1u);
      EXPECT_THAT(x.read(), Each(static_cast<float>(ranks)));
    });
  }
}

}  // namespace
}  // namespace hvd
