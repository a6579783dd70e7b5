#include "launcher/dump/jobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/base/error.h"

namespace hvd::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;

TEST(Jobs, AreFoundByTheSocketsOfTheirLaunchers) {
  EXPECT_THAT(launchers_in("Num RefCount\n00: 2 0 @horovod-dump-4711\n01: 3 0 /run/x\n"
                           "02: 2 0 @horovod-dump-4711\n03: 2 0 @horovod-dump-5\n"
                           "04: 2 0 @horovod-dump-x\n"),
              ElementsAre(4711, 5));
}

/// A shell (2) has started a script (10), which has started a launcher (11) with a supervisor (12)
/// and two ranks, one of them in a wrapper (14); and another launcher (20).
const ProcessParents kProcesses{{1, 0},   {2, 1},   {10, 2},  {11, 10}, {12, 11},
                                {13, 12}, {14, 12}, {15, 14}, {20, 2},  {30, 2}};

std::vector<pid_t> around(pid_t process) { return launchers_around(process, {11, 20}, kProcesses); }

TEST(LaunchersAround, OfAProcessOfAJobIsItsLauncher) {
  for (const pid_t process : {11, 12, 13, 14, 15})
    EXPECT_THAT(around(process), ElementsAre(11)) << process;
}

TEST(LaunchersAround, OfAProcessAboveThemAreAllOfThem) {
  EXPECT_THAT(around(10), ElementsAre(11));
  EXPECT_THAT(around(2), ElementsAre(20, 11));
}

TEST(LaunchersAround, OfAnotherProcessAreNone) {
  EXPECT_THAT(around(30), IsEmpty());
  EXPECT_THAT(around(99), IsEmpty());
}

TEST(LaunchersAround, OfARankThatStartsAJobIsTheNearest) {
  EXPECT_THAT(launchers_around(15, {11, 14}, kProcesses), ElementsAre(14));
}

std::string refusal_of(const std::vector<RunningJob>& jobs) {
  try {
    return std::to_string(the_only(jobs).launcher);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    return error.what();
  }
}

TEST(Jobs, AreListedIfThereAreSeveral) {
  const RunningJob one{.launcher = 7, .command = "horovodrun -np 2 a.py"};
  const RunningJob two{.launcher = 9, .command = "horovodrun -np 4 b.py"};
  EXPECT_EQ(refusal_of({one}), "7");
  EXPECT_EQ(refusal_of({one, two}),
            "several jobs run on this host; name the process of one: horovodrun --dump 7\n"
            "  7: horovodrun -np 2 a.py\n  9: horovodrun -np 4 b.py");
  EXPECT_THAT(refusal_of({}), StartsWith("no job of this user runs on this host; "));
}

}  // namespace
}  // namespace hvd::launcher
