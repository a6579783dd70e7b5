#include "core/device/gpu_info.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/device/testing.h"

namespace hvd::device {
namespace {

using ::testing::ElementsAre;

class GpuInfos : public test::StandIn {};

TEST_F(GpuInfos, AGpuIsDescribedWithoutAContext) {
  const GpuInfo info = gpu_info(test::driver(), 2);
  EXPECT_EQ(info.index, 2);
  EXPECT_EQ(info.name, "Stand-in GPU");
  EXPECT_EQ(info.uuid, "GPU-fa000000-0000-0000-0000-000000000002");
  EXPECT_EQ(info.bus_id, "0000:03:00.0");
  EXPECT_EQ(info.capability_major, 9);
  EXPECT_EQ(info.capability_minor, 0);
  const auto retained =
      test::stand_in<decltype(fake_cuda_retained_contexts)>("fake_cuda_retained_contexts");
  EXPECT_EQ(retained(), 0);
}

TEST_F(GpuInfos, PeersAreTheOtherGpus) {
  EXPECT_THAT(peer_access(test::driver()), ElementsAre(ElementsAre(1, 2, 3), ElementsAre(0, 2, 3),
                                                       ElementsAre(0, 1, 3), ElementsAre(0, 1, 2)));
}

/// Prints what is found and ends.
[[noreturn]] void tell_gpus_with(const char* visible) {
  ::setenv("CUDA_VISIBLE_DEVICES", visible, 1);
  std::string told = "gpus ";
  for (int index = 0; index < test::driver().gpu_count(); ++index)
    told += gpu_info(test::driver(), index).bus_id + " ";
  std::fprintf(stderr, "%send\n", told.c_str());
  ::_exit(0);
}

TEST_F(GpuInfos, VisibleGpusHaveOtherIndicesAndTheSameIdentity) {
  EXPECT_EXIT(tell_gpus_with("3,1"), ::testing::ExitedWithCode(0),
              "gpus 0000:04:00.0 0000:02:00.0 end");
  EXPECT_EXIT(tell_gpus_with("2,9,1"), ::testing::ExitedWithCode(0), "gpus 0000:03:00.0 end");
}

}  // namespace
}  // namespace hvd::device
