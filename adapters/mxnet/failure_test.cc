#include "adapters/mxnet/failure.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace hvd::mxnet {
namespace {

std::runtime_error copied(const Failure& failure) {
  return *reinterpret_cast<const std::runtime_error*>(failure.error());
}

TEST(Failure, IsCopiedAsAnExceptionWithItsText) {
  const std::runtime_error copy = [] {
    const Failure failure("rank 1 is lost");
    return copied(failure);
  }();
  const std::runtime_error another = copy;
  EXPECT_STREQ(another.what(), "rank 1 is lost");
}

TEST(Failure, MayHaveAnEmptyAndALongText) {
  EXPECT_STREQ(copied(Failure("")).what(), "");
  const std::string text(100'000, 'x');
  EXPECT_EQ(copied(Failure(text)).what(), text);
}

}  // namespace
}  // namespace hvd::mxnet
