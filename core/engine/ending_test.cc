#include "core/engine/ending.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hvd {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

Action loss_of(int rank, const std::string& seen) {
  Action action;
  action.type = Action::Type::ended;
  action.lost = true;
  action.rank = rank;
  action.text = seen;
  return action;
}

TEST(Ending, NamesTheHostOfALostRankInAJobOnSeveralHosts) {
  EXPECT_EQ(ending_of(loss_of(2, "it ended"), false, {.on_host = " on host b"}).text,
            "rank 2 on host b is lost: it ended. The job has ended; look for the cause in the "
            "output of rank 2");
  EXPECT_THAT(ending_of(loss_of(2, "it ended"), false, {}).text, StartsWith("rank 2 is lost: it "));
  EXPECT_THAT(ending_of(Error(Code::peer_lost, "it ended", 2), 0, {.on_host = " on host b"}).text,
              StartsWith("rank 2 on host b is lost: it ended"));
}

TEST(Ending, DoesNotSayThatAnElasticJobHasEnded) {
  EXPECT_EQ(ending_of(loss_of(2, "it ended"), false, {.others_go_on = true}).text,
            "rank 2 is lost: it ended; look for the cause in the output of rank 2");
}

TEST(Ending, NamesTheHostOnce) {
  EXPECT_THAT(
      ending_of(loss_of(2, "its process on host b is stopped"), false, {.on_host = " on host b"})
          .text,
      StartsWith("rank 2 is lost: its process on host b is stopped"));
}

TEST(Ending, TellsARankThatItWasGivenUpItself) {
  constexpr auto* kExpected =
      "this process, rank 2, has lost its place in the job and cannot continue: it was stopped";
  EXPECT_EQ(ending_of(loss_of(2, "it was stopped"), true, {}).text, kExpected);
  EXPECT_EQ(ending_of(Error(Code::peer_lost, "it was stopped", 2), 2, {}).text, kExpected);
}

TEST(Ending, BlamesNoRankForALostLauncher) {
  const Ending ending = ending_of(loss_of(kLostLauncher, "seen by rank 2"), false, {});
  EXPECT_EQ(ending.text, "the launcher of this job is lost: seen by rank 2");
  EXPECT_EQ(ending.rank, kNoRank);
  EXPECT_EQ(ending.code, Code::peer_lost);
}

TEST(Ending, SaysWhoHasReportedALoss) {
  const Error error = error_of({.lost = 3, .by = 1});
  EXPECT_STREQ(error.what(), "rank 1 has reported it");
  EXPECT_EQ(error.rank(), 3);
  EXPECT_EQ(error.code(), Code::peer_lost);
  EXPECT_STREQ(error_of({.lost = 3}).what(), "a rank of this host has reported it");
  EXPECT_THAT(error_of({.lost = 3, .by = 3}).what(), HasSubstr("it has failed"));
}

TEST(Ending, OfARankThatHasFailedIsItsOwnError) {
  const Ending ending = ending_of(Error(Code::internal, "no memory"), 2, {.on_host = " on host b"});
  EXPECT_EQ(ending.code, Code::internal);
  EXPECT_EQ(ending.text, "no memory");
}

}  // namespace
}  // namespace hvd
