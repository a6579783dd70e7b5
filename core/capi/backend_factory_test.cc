// What the knobs mean for GPUs.
#include "core/capi/backend_factory.h"

#include <gtest/gtest.h>

#include <chrono>

namespace hvd {
namespace {

nccl::NcclOptions options_with(const Environment& environment) {
  return gpu_options(environment, knobs_from(environment), Identity{}, "");
}

TEST(BackendFactory, EveryWordForTrueMakesAnElasticJobThatExitsIfItsGpuIsStuck) {
  for (const char* yes : {"1", "true", "yes", "on", "True", "ON"})
    EXPECT_TRUE(options_with({{"HOROVOD_ELASTIC", yes}}).exits_if_stuck) << yes;
  for (const char* no : {"0", "false", "no", "off"})
    EXPECT_FALSE(options_with({{"HOROVOD_ELASTIC", no}}).exits_if_stuck) << no;
  EXPECT_FALSE(options_with({}).exits_if_stuck);
}

TEST(BackendFactory, RanksEndTheirGpuWorkTogetherWithinTheTimeoutForPeers) {
  const auto options = options_with({{"HOROVOD_GLOO_TIMEOUT_SECONDS", "77"}});
  EXPECT_EQ(options.peer_timeout, std::chrono::seconds(77));
  EXPECT_EQ(options.end_timeout, std::chrono::seconds(10));
}

}  // namespace
}  // namespace hvd
