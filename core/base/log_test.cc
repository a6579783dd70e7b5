#include "core/base/log.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace hvd {
namespace {

TEST(LimitedLog, WritesTheFirstLinesAndSaysThatItStops) {
  LimitedLog limited(2);
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 1000; ++i) limited.log(LogLevel::warning, "a stranger");
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  EXPECT_EQ(text.find("further ones"), text.rfind("further ones"));
  EXPECT_NE(text.find("a stranger (further messages are suppressed)"), std::string::npos) << text;
}

}  // namespace
}  // namespace hvd
