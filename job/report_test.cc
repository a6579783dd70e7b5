#include "job/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

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
              ElementsAre("rank 0 exited with code 1 as a consequence of rank 1 (lost)"));
  EXPECT_THAT(report({.kind = Kind::later, .rank = 0, .status = {.code = 1}}, {}),
              ElementsAre("rank 0 exited with code 1 after that"));
  EXPECT_THAT(report({.kind = Kind::stopped, .rank = 0, .status = {.signal = SIGKILL}}, {}),
              ElementsAre("rank 0 was stopped (SIGKILL)"));
}

}  // namespace
}  // namespace hvd::job
