#include "job/driver/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "job/driver/last_word.h"

namespace hvd::job {
namespace {

using ::testing::ElementsAre;
using Kind = Announce::Kind;

TEST(Report, NamesTheFirstFailureWithItsLastLines) {
  EXPECT_THAT(report({.kind = Kind::first, .rank = 2, .status = {.code = 3}}, {"a", "b"}),
              ElementsAre("rank 2 exited with code 3; its last lines:", "    a", "    b"));
  EXPECT_THAT(report({.kind = Kind::first, .rank = 2, .status = {.signal = SIGSEGV}}, {}),
              ElementsAre("rank 2 was killed by signal 11 (SIGSEGV); it wrote nothing"));
}

TEST(Report, TellsWhomTheFirstFailureBlames) {
  EXPECT_THAT(
      report(
          {.kind = Kind::first, .rank = 0, .status = {.code = 1}, .cause = 1, .reason = "silent"},
          {}),
      ElementsAre("rank 0 exited with code 1; it says that rank 1 is the cause (silent); "
                  "it wrote nothing"));
}

TEST(Report, MarksConsequencesAsSuch) {
  EXPECT_THAT(report({.kind = Kind::consequence,
                      .rank = 0,
                      .status = {.code = 1},
                      .cause = 1,
                      .reason = "lost"},
                     {"noise"}),
              ElementsAre("rank 0 exited with code 1 as a consequence of rank 1"));
  EXPECT_THAT(report({.kind = Kind::later, .rank = 0, .status = {.code = 1}}, {}),
              ElementsAre("rank 0 exited with code 1 after that"));
  EXPECT_THAT(report({.kind = Kind::stopped, .rank = 0, .status = {.signal = SIGKILL}}, {}),
              ElementsAre("rank 0 was stopped (SIGKILL)"));
}

TEST(LastWord, NamesRankCauseAndReason) {
  const auto word = parse_last_word("ended/2/13", "4 its process ended");
  ASSERT_TRUE(word.has_value());
  EXPECT_EQ(word->rank, 13);
  EXPECT_EQ(word->cause, 4);
  EXPECT_EQ(word->reason, "its process ended");
}

TEST(LastWord, OfAnotherFormIsNone) {
  EXPECT_FALSE(parse_last_word("other/1/2", "3 x"));
  EXPECT_FALSE(parse_last_word("ended/1", "3 x"));
  EXPECT_FALSE(parse_last_word("ended/1/", "3 x"));
  EXPECT_FALSE(parse_last_word("ended/1/2x", "3 x"));
  EXPECT_FALSE(parse_last_word("ended/1/2", "x"));
}

}  // namespace
}  // namespace hvd::job
