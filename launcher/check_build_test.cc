#include "launcher/check_build.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hvd::launcher {
namespace {

using ::testing::HasSubstr;

TEST(CheckBuild, HasTheExactLayout) {
  const std::string text = check_build_text({.torch = true}, false);
  EXPECT_THAT(text, ::testing::StartsWith("Horovod v"));
  EXPECT_THAT(text, HasSubstr("Available Frameworks:\n    [ ] TensorFlow\n    [X] PyTorch\n"));
  EXPECT_TRUE(text.ends_with("    [ ] MPI\n    [X] Gloo    \n"));
  EXPECT_TRUE(check_build_text({.mpi = true}, false).ends_with("    [X] MPI\n    [X] Gloo    \n"));
  EXPECT_THAT(check_build_text({.nccl = true}, false), HasSubstr("    [X] NCCL\n    [ ] DDL\n"));
  EXPECT_TRUE(check_build_text({.gpus = "    GPU 0\n"}, false)
                  .ends_with("    [X] Gloo    \n\nGPUs:\n    GPU 0\n"));
  EXPECT_TRUE(check_build_text({.reasons = "why\n"}, true).starts_with("\nwhy\nHorovod v"));
}

TEST(CheckBuild, SaysThatOtherCpusAreExperimental) {
  EXPECT_TRUE(check_build_text({.cpu = "aarch64"}, false)
                  .ends_with("    [X] Gloo    \n\nExperimental: tested for aarch64 by emulation "
                             "only, not on a machine.\n"));
}

}  // namespace
}  // namespace hvd::launcher
