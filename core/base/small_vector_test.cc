#include "core/base/small_vector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace hvd {
namespace {

using Texts = SmallVector<std::string, 2>;

/// Long enough for heap storage, so that a sanitizer detects leaks and double frees.
std::string text(size_t i) { return std::string(40, 'x') + std::to_string(i); }

Texts texts(size_t count) {
  Texts made;
  for (size_t i = 0; i < count; ++i) made.push_back(text(i));
  return made;
}

std::vector<std::string> expected(size_t count) {
  std::vector<std::string> made;
  for (size_t i = 0; i < count; ++i) made.push_back(text(i));
  return made;
}

TEST(SmallVector, HoldsWhatWasPutInWhetherItFitsInsideOrNot) {
  for (size_t count = 0; count < 9; ++count)
    EXPECT_THAT(texts(count), testing::ElementsAreArray(expected(count)));
}

TEST(SmallVector, CopiesAndMovesInAllCombinationsOfSizes) {
  for (size_t from = 0; from < 6; ++from) {
    for (size_t to = 0; to < 6; ++to) {
      const Texts source = texts(from);
      Texts copied = texts(to);
      copied = source;
      EXPECT_EQ(copied, source);
      Texts moved = texts(to);
      moved = std::move(copied);
      EXPECT_EQ(moved, source);
      EXPECT_TRUE(copied.empty());  // and is usable
      copied.push_back(text(7));
      EXPECT_THAT(copied, testing::ElementsAre(text(7)));
      const Texts taken(std::move(moved));
      EXPECT_EQ(taken, source);
    }
  }
}

TEST(SmallVector, AnElementOfItsOwnMayBeAppendedWhileItGrows) {
  Texts some = texts(2);
  some.emplace_back(some.front());
  EXPECT_THAT(some, testing::ElementsAre(text(0), text(1), text(0)));
}

TEST(SmallVector, IsOrderedLikeAVector) {
  using Numbers = SmallVector<int, 2>;
  EXPECT_LT((Numbers{1, 2}), (Numbers{1, 2, 0}));
  EXPECT_LT((Numbers{1, 2, 5}), (Numbers{1, 3}));
  EXPECT_NE((Numbers{1}), (Numbers{1, 1}));
  EXPECT_EQ((Numbers(3, 4)), (Numbers{4, 4, 4}));
}

}  // namespace
}  // namespace hvd
