#include "job/check_build.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hvd::job {
namespace {

using ::testing::HasSubstr;

TEST(CheckBuild, HasTheExactLayout) {
  const std::string text = check_build_text({.torch = true}, false);
  EXPECT_THAT(text, ::testing::StartsWith("Horovod v"));
  EXPECT_THAT(text, HasSubstr("Available Frameworks:\n    [ ] TensorFlow\n    [X] PyTorch\n"));
  EXPECT_TRUE(text.ends_with("    [ ] MPI\n    [X] Gloo    \n"));
  EXPECT_TRUE(check_build_text({.mpi = true}, false).ends_with("    [X] MPI\n    [X] Gloo    \n"));
  EXPECT_TRUE(check_build_text({.reasons = "why\n"}, true).starts_with("\nwhy\nHorovod v"));
}

}  // namespace
}  // namespace hvd::job
