// The sentences that need no device to be provoked.
#include "core/device/messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hvd::device {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(DeviceMessages, RanksThatShareAGpuAreNamedWithWhatTheySee) {
  const RankGpu a{2, "node1", "GPU-aa", "0000:01:00.0", "0"};
  const RankGpu b{5, "node1", "GPU-aa", "0000:01:00.0", ""};
  const RankGpu other_host{7, "node2", "GPU-bb", "0000:01:00.0", ""};
  EXPECT_EQ(shared_gpu_text({a, other_host}), "");
  EXPECT_THAT(shared_gpu_text({a, other_host, b}),
              AllOf(StartsWith("rank 2 (CUDA_VISIBLE_DEVICES =0) and rank 5 "
                               "(CUDA_VISIBLE_DEVICES not set) use the same GPU of host node1, "
                               "GPU-aa at 0000:01:00.0"),
                    HasSubstr("set_device(hvd.local_rank())")));
}

TEST(DeviceMessages, AFailureOfNcclHasARemedyForItsKind) {
  NcclFailure failure{.doing = "making a communicator",
                      .result = NcclResult::system_error,
                      .text = "unhandled system error",
                      .nccl_version = 22705,
                      .shm_free_bytes = 60 << 20};
  EXPECT_EQ(nccl_failure_text(failure),
            "making a communicator: NCCL 2.27.5 failed with unhandled system error: /dev/shm has "
            "60 MiB left, NCCL may need more: start the container with --shm-size=1g --ulimit "
            "memlock=-1");
  failure.shm_free_bytes = size_t{8} << 30;
  EXPECT_THAT(nccl_failure_text(failure), HasSubstr("NCCL_SOCKET_IFNAME"));
  failure.result = NcclResult::internal_error;
  failure.last_error = "Net error";
  EXPECT_THAT(nccl_failure_text(failure),
              AllOf(HasSubstr("(its last message: Net error)"), HasSubstr("NCCL_DEBUG=WARN")));
}

TEST(DeviceMessages, AFailureOfNcclOnTheGpuNamesTheMemoryThatIsFree) {
  NcclFailure failure{.doing = "ncclCommInitRankConfig",
                      .result = NcclResult::unhandled_cuda_error,
                      .text = "unhandled cuda error"};
  EXPECT_THAT(nccl_failure_text(failure), HasSubstr("If the GPU has no memory left, free"));
  failure.gpu_free_bytes = 30 << 20;
  failure.gpu_total_bytes = size_t{80} << 30;
  EXPECT_THAT(nccl_failure_text(failure),
              AllOf(HasSubstr("30 of 81920 MiB of the GPU are free"),
                    HasSubstr("torch.cuda.empty_cache()"), HasSubstr("set_memory_growth")));
}

TEST(DeviceMessages, AnOldDriverIsReportedWithWhatItLacks) {
  EXPECT_EQ(old_driver_text("/usr/lib/libcuda.so.1", 9000, {"cuStreamIsCapturing"}),
            "the GPU driver /usr/lib/libcuda.so.1 is too old: it lacks cuStreamIsCapturing (the "
            "driver supports CUDA 9.0): install a newer driver");
}

TEST(DeviceMessages, PinningNamesTheLimitOfLockedMemory) {
  EXPECT_THAT(no_pinned_memory_text(1 << 20, 64 << 10, "out of memory"),
              AllOf(StartsWith("1024 KiB of host memory cannot be pinned for the GPU"),
                    HasSubstr("locked memory is 64 KiB (ulimit -l)")));
  EXPECT_THAT(no_pinned_memory_text(1, SIZE_MAX, ""), HasSubstr("is unlimited"));
}

}  // namespace
}  // namespace hvd::device
