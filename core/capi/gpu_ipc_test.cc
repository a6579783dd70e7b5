// Jobs whose ranks read each other's GPU memory: when they do, and what they do if they cannot.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "core/capi/gpu_testing.h"

namespace hvd {
namespace {

using device::test::Variable;
using test::gpu_job;
using test::GpuJobOptions;
using test::GpuRank;
using test::GpuRequest;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class GpuIpc : public device::test::StandIn {};

/// An allreduce of ones in place. Returns the sums.
std::vector<float> sum(GpuRank& rank, size_t elements, const char* name = "x") {
  auto x = rank.tensor<float>(std::vector<float>(elements, 1.0f));
  GpuRequest request(HVD_ALLREDUCE, name);
  request.add(rank, x.data(), x.data(), HVD_FLOAT32, {static_cast<int64_t>(elements)});
  EXPECT_EQ(rank.finish(rank.submit(request.request)), "");
  return x.read();
}

/// Runs a job, and returns what rank 0 has logged as warnings.
std::string warnings_of(const GpuJobOptions& options, Mover expected) {
  ::testing::internal::CaptureStderr();
  gpu_job(2, options, [&](GpuRank& rank) {
    for (int i = 0; i < 3; ++i) EXPECT_THAT(sum(rank, 1000), Each(2.0f));
    EXPECT_EQ(batches_by(rank, expected), 3u) << "also the first, before which the ranks meet";
  });
  return ::testing::internal::GetCapturedStderr();
}

TEST_F(GpuIpc, RanksOnOneGpuReadEachOthersMemory) {
  EXPECT_THAT(warnings_of(test::with_ipc(), Mover::ipc),
              AllOf(HasSubstr("use the same GPU of host host"),
                    HasSubstr("the ranks read each other's GPU memory (CUDA IPC), which is")));
}

TEST_F(GpuIpc, RanksWithoutNcclReadEachOthersMemory) {
  const Variable old("FAKE_NCCL_VERSION", "21400");
  GpuJobOptions options = test::with_ipc();
  options.one_gpu = false;
  EXPECT_THAT(warnings_of(options, Mover::ipc), HasSubstr("moved without NCCL, which is slower"));
}

TEST_F(GpuIpc, MemoryOfAFrameworkIsNotShared) {
  gpu_job(2, test::with_ipc(), [](GpuRank& rank) {
    const device::DeviceMemory memory(rank.context(), 1000 * sizeof(float));
    device::test::stand_in<decltype(fake_cuda_keep_private)>("fake_cuda_keep_private")(
        memory.address());
    EXPECT_THAT(device::test::error_of([&] { memory.share(); }),
                HasSubstr("cuIpcGetMemHandle: CUDA_ERROR_INVALID_VALUE"));
    auto* const data = static_cast<float*>(device::test::pointer(memory.address()));
    rank.framework().queue("fill", {{data, 1000 * sizeof(float), true}},
                           [=] { std::fill_n(data, 1000, 1.0f); });
    GpuRequest request(HVD_ALLREDUCE, "x");
    request.add(rank, data, data, HVD_FLOAT32, {1000});
    EXPECT_EQ(rank.finish(rank.submit(request.request)), "");
    EXPECT_THAT(rank.read(data, 1000), Each(2.0f));
    EXPECT_EQ(batches_by(rank, Mover::ipc), 1u);
  });
}

TEST_F(GpuIpc, HostMemoryCanBeChosen) {
  GpuJobOptions options = test::with_ipc();
  options.nccl.choice = GpuOperationsChoice::host;
  warnings_of(options, Mover::staged);
}

TEST_F(GpuIpc, MemoryThatCannotBeMappedIsStagedWithTheReason) {
  GpuJobOptions options = test::with_ipc();
  options.nccl.ipc_ranks = nccl::IpcMemory::Rank::process;  // which they are not
  EXPECT_THAT(warnings_of(options, Mover::staged),
              AllOf(HasSubstr("the ranks 0, 1 cannot read each other's GPU memory: rank 0: "
                              "cuIpcOpenMemHandle: CUDA_ERROR_INVALID_CONTEXT"),
                    HasSubstr("copied through host memory")));
}

TEST_F(GpuIpc, ARankWithoutMemoryToShareIsNamed) {
  const Variable fails("FAKE_CUDA_FAIL", "cuIpcGetMemHandle=1@2");
  constexpr size_t kSizeOfNoOtherJob = 192 * KiB;  // otherwise a buffer is used again
  const std::string logged = warnings_of(test::with_ipc(kSizeOfNoOtherJob), Mover::staged);
  EXPECT_THAT(logged, ::testing::ContainsRegex("rank [01] has no memory to share: "
                                               "cuIpcGetMemHandle: CUDA_ERROR_INVALID_VALUE"));
}

/// The ranks meet, and take for done what their GPUs have not done.
void meet_without_queries() {
  const test::Mutation mutation;
  gpu_job(2, test::with_ipc(), [&](GpuRank& rank) {
    if (rank.rank() == 0) mutation.begin("cuEventQuery=0");
    sum(rank, 10);
  });
}

TEST_F(GpuIpc, RanksReadEachOthersStampsWhenTheyAreStored) {
  EXPECT_DEATH(meet_without_queries(),
               "cuMemcpyAsync on stream .* reads memory that cuMemcpyAsync on stream .* writes");
}

TEST_F(GpuIpc, ScaledReductionsOfJoinedRanksAreRight) {
  for (const auto op : {HVD_SUM, HVD_AVERAGE, HVD_PRODUCT, HVD_MIN}) {
    gpu_job(3, test::with_ipc(256), [&](GpuRank& rank) {
      sum(rank, 1);  // all have a GPU
      auto x = rank.tensor<float>(std::vector<float>(300, 3.0f));
      if (rank.rank() != 2) {
        GpuRequest request(HVD_ALLREDUCE, "y");
        request.request.operation.op = op;
        request.request.operation.prescale = -2;
        request.add(rank, x.data(), x.data(), HVD_FLOAT32, {300});
        EXPECT_EQ(rank.finish(rank.submit(request.request)), "");
      }
      hvd_request join{};
      join.operation.kind = HVD_JOIN;
      EXPECT_EQ(rank.finish(rank.submit(join)), "");
      const float expected = op == HVD_SUM       ? -12.0f
                             : op == HVD_AVERAGE ? -4.0f
                             : op == HVD_PRODUCT ? 36.0f
                                                 : -6.0f;
      rank.framework().finish();
      if (rank.rank() == 2) return;
      EXPECT_THAT(x.read(), Each(expected)) << "op " << op;
    });
  }
}

TEST_F(GpuIpc, BuffersAreCountedAndUsedAgainByALaterJob) {
  const device::test::Gpu gpu(0);
  std::vector<size_t> free_after;
  for (int job = 0; job < 3; ++job) {
    gpu_job(2, test::with_ipc(), [](GpuRank& rank) {
      EXPECT_THAT(sum(rank, 100'000), Each(2.0f));
      const uint64_t counted = rank.thread().counters().snapshot().device_bytes;
      EXPECT_GE(counted, 4 * 64 * KiB);
      EXPECT_LT(counted, 5 * 64 * KiB);
    });
    size_t free_bytes = 0, total_bytes = 0;
    gpu.context.call().memory_get_info(&free_bytes, &total_bytes);
    free_after.push_back(free_bytes);
  }
  EXPECT_THAT(free_after, Each(free_after.front()));
}

TEST_F(GpuIpc, AMessageIsReadByItsReceiver) {
  gpu_job(3, test::with_ipc(), [](GpuRank& rank) {
    if (rank.rank() == 1) return;
    const bool sends = rank.rank() == 2;
    auto x = rank.tensor<float>({sends ? 7.0f : 0.0f, sends ? 8.0f : 0.0f});
    for (int i = 0; i < 20; ++i) {
      GpuRequest request(HVD_MESSAGE, "m");
      request.add(rank, x.data(), sends ? nullptr : x.data(), HVD_FLOAT32, {2});
      request.request.operation.root = 2;
      request.request.operation.receiver = 0;
      EXPECT_EQ(rank.finish(rank.submit(request.request)), "");
    }
    EXPECT_THAT(x.read(), ElementsAre(7.0f, 8.0f));
    EXPECT_EQ(batches_by(rank, Mover::ipc), 20u);
  });
}

}  // namespace
}  // namespace hvd
