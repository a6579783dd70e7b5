// Ranks that are silent: others have given them up, or they are stopped while others wait in init.
#include <csignal>

#include "launcher/driver/driver_testing.h"

namespace hvd::launcher {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Kind = Announce::Kind;

TEST_F(DriverTest, ASilentRankThatIsLeftWhenAllOthersHaveEndedWellEndsTheJob) {
  on({WorkerEnds{at(0), at(1), "it is stopped", true}, WorkerExited{at(0), kOk}});
  EXPECT_EQ(driver.deadline(), std::nullopt) << "a rank is left that was not given up";
  EXPECT_THAT(on({WorkerExited{at(2), kOk}}), ElementsAre(AnnounceSilent{at(1), "it is stopped"}));
  EXPECT_THAT(wait(), ElementsAre(SignalAll{SIGTERM}));
  EXPECT_THAT(wait(), ElementsAre(SignalAll{SIGKILL}));
  EXPECT_THAT(
      on({WorkerExited{at(1), kKilled}, NothingLeft{}}),
      ElementsAre(Announce{.kind = Kind::stopped, .worker = at(1), .status = kKilled}, Finish{1}));
}

TEST_F(DriverTest, AStoppedRankForWhichOthersWaitInInitEndsTheJob) {
  driver = Driver({.workers = kOnOneHost, .heartbeat = 6s});
  now += 100s;
  const Action look = LookForStopped{.only_in_init = true};
  EXPECT_THAT(on({}), ElementsAre(look));
  EXPECT_THAT(on({WorkersStopped{{at(1)}}}), IsEmpty()) << "perhaps only for a moment";
  EXPECT_THAT(wait(), ElementsAre(look));
  EXPECT_THAT(on({WorkersStopped{{at(1), at(2)}}}), IsEmpty());
  EXPECT_THAT(wait(), ElementsAre(look));
  EXPECT_EQ(now, TimePoint{} + 104s);
  EXPECT_THAT(
      on({WorkersStopped{{at(1), at(2)}}}),
      ElementsAre(AnnounceSilent{
          at(1), "its process is stopped (SIGSTOP), and others wait for it in hvd.init()"}));
  EXPECT_THAT(on({WorkersStopped{{at(1), at(2)}}}), IsEmpty());
  EXPECT_THAT(wait(), ElementsAre(SignalAll{SIGTERM})) << "nothing is looked for any more";
}

TEST_F(DriverTest, ARankAloneIsNotLookedFor) {
  driver = Driver({.workers = {at(0)}, .heartbeat = 4s});
  EXPECT_EQ(driver.deadline(), std::nullopt);
}

TEST_F(DriverTest, OneThatHasFailedSinceItHasLostASilentRankIsTheFirstFailure) {
  on({WorkerEnds{at(0), at(1), "silent", true}, WorkerExited{at(0), kRaised}});
  EXPECT_THAT(on({WorkerExited{at(2), kOk}}), ElementsAre(RefuseStarts{at(2)}));
  EXPECT_EQ(wait().front(), (Action{Announce{.kind = Kind::first,
                                             .worker = at(0),
                                             .status = kRaised,
                                             .cause = at(1),
                                             .reason = "silent"}}));
}

TEST_F(DriverTest, ASilentRankThatEndsWellAfterAllIsNoFailure) {
  on({WorkerEnds{at(0), at(1), "it is stopped", true}, WorkerExited{at(0), kOk},
      WorkerExited{at(1), kOk}});
  EXPECT_THAT(on({WorkerExited{at(2), kOk}, NothingLeft{}}), ElementsAre(Finish{0}));
}

}  // namespace
}  // namespace hvd::launcher
