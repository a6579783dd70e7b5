#include "launcher/options/words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"

namespace hvd::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Words, AreSeparatedByBlanks) {
  EXPECT_THAT(split_words("--x", ""), IsEmpty());
  EXPECT_THAT(split_words("--x", " \t"), IsEmpty());
  EXPECT_THAT(split_words("--x", " -mca  btl\tself "), ElementsAre("-mca", "btl", "self"));
}

TEST(Words, KeepBlanksInQuotesAndBehindABackslash) {
  EXPECT_THAT(split_words("--x", "-x A='b c' \"d 'e\" f\\ g ''"),
              ElementsAre("-x", "A=b c", "d 'e", "f g", ""));
  EXPECT_THAT(split_words("--x", "'a\\b' \"a\\\"b\""), ElementsAre("a\\b", "a\"b"));
  EXPECT_THAT(split_words("--x", "$HOME;`date`"), ElementsAre("$HOME;`date`"));
}

TEST(Words, WithAnOpenQuoteAreRefused) {
  EXPECT_THROW(split_words("--x", "a 'b"), Error);
  EXPECT_THROW(split_words("--x", "a \"b'"), Error);
}

TEST(Words, AreNumbersIfTheyAreDigitsAlone) {
  EXPECT_TRUE(is_number("0123456789"));
  EXPECT_FALSE(is_number(""));
  EXPECT_FALSE(is_number("-1"));
  EXPECT_FALSE(is_number("1.5"));
}

}  // namespace
}  // namespace hvd::launcher
