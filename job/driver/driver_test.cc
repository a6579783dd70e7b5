#include "job/driver/driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace hvd::job {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Kind = Announce::Kind;
using Actions = std::vector<Action>;

constexpr ExitStatus kOk{};
constexpr ExitStatus kRaised{.code = 1};
constexpr ExitStatus kKilled{.signal = SIGKILL};
constexpr ExitStatus kTerminated{.signal = SIGTERM};

class DriverTest : public ::testing::Test {
 protected:
  Actions on(std::vector<Event> events) { return driver.on(now, std::move(events)); }
  /// Moves the time to the next deadline.
  Actions wait() {
    const auto deadline = driver.deadline();
    EXPECT_TRUE(deadline.has_value());
    if (deadline) now = *deadline;
    return on({});
  }
  static Action first(int rank, ExitStatus status) {
    return Announce{.kind = Kind::first, .rank = rank, .status = status};
  }

  TimePoint now{};
  Driver driver{{.ranks = 3}};
};

TEST_F(DriverTest, WhatDoesNotEndWhenItIsKilledIsGivenUp) {
  on({Interrupted{SIGTERM}});
  EXPECT_THAT(wait(), ElementsAre(SignalAll{SIGKILL}));
  EXPECT_THAT(wait(), ElementsAre(Abandon{{0}}, Finish{143}));
}

TEST_F(DriverTest, AJobWhoseRanksAllEndWellEndsWell) {
  EXPECT_THAT(on({RankExited{0, kOk}}), IsEmpty());
  EXPECT_THAT(on({RankExited{2, kOk}}), IsEmpty());
  EXPECT_EQ(driver.deadline(), std::nullopt) << "a rank may run as long as it likes";
  EXPECT_THAT(on({NothingLeft{}, RankExited{1, kOk}}), ElementsAre(Finish{0}));
}

TEST_F(DriverTest, WhatRanksLeaveRunningIsEndedStepByStep) {
  EXPECT_THAT(on({RankExited{0, kOk}, RankExited{1, kOk}, RankExited{2, kOk}}), IsEmpty());
  EXPECT_THAT(wait(), ElementsAre(SignalAll{SIGTERM}));
  EXPECT_EQ(now, TimePoint{} + 1s);
  EXPECT_THAT(wait(), ElementsAre(SignalAll{SIGKILL}));
  EXPECT_EQ(now, TimePoint{} + 6s);
  EXPECT_THAT(on({NothingLeft{}}), ElementsAre(Finish{0}));
}

TEST_F(DriverTest, TheFirstFailureIsAnnouncedAndTheRestGetsGraceThenSignals) {
  EXPECT_THAT(on({RankExited{1, {.code = 3}}}), ElementsAre(first(1, {.code = 3})));
  EXPECT_THAT(wait(), ElementsAre(SignalAll{SIGTERM}));
  EXPECT_EQ(now, TimePoint{} + 1s);
  EXPECT_THAT(on({RankExited{0, kTerminated}}),
              ElementsAre(Announce{.kind = Kind::stopped, .rank = 0, .status = kTerminated}));
  EXPECT_THAT(wait(), ElementsAre(SignalAll{SIGKILL}));
  EXPECT_EQ(now, TimePoint{} + 6s);
  EXPECT_THAT(
      on({RankExited{2, kKilled}, NothingLeft{}}),
      ElementsAre(Announce{.kind = Kind::stopped, .rank = 2, .status = kKilled}, Finish{3}));
}

TEST_F(DriverTest, ADeathBySignalGives128PlusTheSignal) {
  on({RankExited{1, kKilled}});
  EXPECT_THAT(on({RankExited{0, kOk}, RankExited{2, kOk}, NothingLeft{}}),
              ElementsAre(Finish{137}));
}

TEST_F(DriverTest, OfWhatIsSeenAtOnceADeathBySignalIsTheFirstFailure) {
  EXPECT_THAT(
      on({RankExited{0, kRaised}, RankExited{1, kKilled}}),
      ElementsAre(first(1, kKilled), Announce{.kind = Kind::later, .rank = 0, .status = kRaised}));
}

TEST_F(DriverTest, ARankThatNamesAnotherWaitsForIt) {
  EXPECT_THAT(on({RankEnds{0, 1, "connection lost"}}), ElementsAre(HoldOutput{0}));
  EXPECT_THAT(on({RankExited{0, kRaised}}), IsEmpty());
  EXPECT_THAT(on({RankExited{1, {.code = 7}}}), ElementsAre(first(1, {.code = 7}), ReleaseOutput{0},
                                                            Announce{.kind = Kind::consequence,
                                                                     .rank = 0,
                                                                     .status = kRaised,
                                                                     .cause = 1,
                                                                     .reason = "connection lost"}));
  EXPECT_THAT(on({RankExited{2, kOk}, NothingLeft{}}), ElementsAre(Finish{7}));
}

TEST_F(DriverTest, BlameThatArrivesWithTheExitCountsToo) {
  EXPECT_THAT(on({RankExited{0, kRaised}, RankEnds{0, 1, "lost"}}), ElementsAre(HoldOutput{0}));
}

TEST_F(DriverTest, AChainOfBlameEndsAtTheRankThatBlamesNobody) {
  on({RankEnds{0, 1, "a"}, RankEnds{1, 2, "b"}, RankExited{0, kRaised}, RankExited{1, kRaised}});
  const Actions actions = on({RankExited{2, kKilled}});
  ASSERT_FALSE(actions.empty());
  EXPECT_EQ(actions.front(), first(2, kKilled));
  EXPECT_EQ(actions.size(), 5u);  // two released, two consequences
}

TEST_F(DriverTest, TheNamedRankIsWaitedForOnlyForASecond) {
  on({RankEnds{0, 1, "silent"}, RankExited{0, kRaised}});
  EXPECT_THAT(
      wait(),
      ElementsAre(
          Announce{
              .kind = Kind::first, .rank = 0, .status = kRaised, .cause = 1, .reason = "silent"},
          ReleaseOutput{0}));
  EXPECT_EQ(now, TimePoint{} + 1s);
}

TEST_F(DriverTest, ARankThatNamesOneThatEndedWellIsItselfTheFirstFailure) {
  on({RankExited{1, kOk}});
  const Actions actions = on({RankEnds{0, 1, "gone"}, RankExited{0, kRaised}});
  EXPECT_THAT(
      actions,
      ElementsAre(Announce{
          .kind = Kind::first, .rank = 0, .status = kRaised, .cause = 1, .reason = "gone"}));
}

TEST_F(DriverTest, RanksThatBlameEachOtherAreSettledWhenNothingIsLeft) {
  on({RankEnds{0, 1, "a"}, RankEnds{1, 0, "b"}, RankExited{0, kRaised}, RankExited{2, kOk}});
  on({RankExited{1, kRaised}});
  const Actions actions = on({NothingLeft{}});
  ASSERT_FALSE(actions.empty());
  EXPECT_EQ(actions.back(), Action{Finish{1}});
}

TEST_F(DriverTest, OutputIsHeldForASecondAtMost) {
  on({RankEnds{0, 1, "lost"}});
  EXPECT_THAT(wait(), ElementsAre(ReleaseOutput{0}));
  EXPECT_EQ(driver.deadline(), std::nullopt);
}

TEST_F(DriverTest, ARankThatGetsOverTheLossIsReleasedWhenItEndsWell) {
  on({RankEnds{0, 1, "lost"}});
  EXPECT_THAT(on({RankExited{0, kOk}}), ElementsAre(ReleaseOutput{0}));
}

TEST_F(DriverTest, ALaterWordOfARankReplacesTheEarlierOne) {
  on({RankEnds{0, 1, "shutdown was requested"}});
  EXPECT_THAT(wait(), ElementsAre(ReleaseOutput{0}));
  EXPECT_THAT(on({RankEnds{0, 2, "lost"}}), ElementsAre(HoldOutput{0}));
  on({RankExited{0, kRaised}});
  const Actions actions = on({RankExited{2, kKilled}});
  ASSERT_FALSE(actions.empty());
  EXPECT_EQ(actions.front(), first(2, kKilled));
}

TEST_F(DriverTest, BlameThatMakesNoSenseIsIgnored) {
  EXPECT_THAT(on({RankEnds{0, 0, "me"}, RankEnds{0, 3, "who"}, RankEnds{0, -1, "nobody"}}),
              IsEmpty());
  EXPECT_THAT(on({RankExited{0, kRaised}}), ElementsAre(first(0, kRaised)));
}

TEST_F(DriverTest, AnInterruptionTerminatesAtOnceAndASecondOneKills) {
  EXPECT_THAT(on({Interrupted{SIGINT}}), ElementsAre(SignalAll{SIGTERM}));
  EXPECT_THAT(on({Interrupted{SIGINT}}), ElementsAre(SignalAll{SIGKILL}));
  EXPECT_THAT(on({RankExited{0, kKilled}, RankExited{1, kKilled}, RankExited{2, kKilled}}),
              ::testing::Each(::testing::VariantWith<Announce>(
                  ::testing::Field(&Announce::kind, Kind::stopped))));
  EXPECT_THAT(on({NothingLeft{}}), ElementsAre(Finish{130}));
}

TEST_F(DriverTest, AnInterruptionAfterAFailureKeepsTheFailuresCode) {
  on({RankExited{1, {.code = 9}}});
  EXPECT_THAT(on({Interrupted{SIGTERM}}), ElementsAre(SignalAll{SIGTERM}));
  EXPECT_THAT(on({NothingLeft{}}), ElementsAre(Finish{9}));
}

TEST_F(DriverTest, WhatIgnoresSigtermIsKilled) {
  on({Interrupted{SIGTERM}});
  EXPECT_THAT(wait(), ElementsAre(SignalAll{SIGKILL}));
  EXPECT_EQ(now, TimePoint{} + 5s);
}

class DriverOfTwoHosts : public DriverTest {
 protected:
  DriverOfTwoHosts() { driver = Driver({.ranks = 3, .hosts = 2, .farewell = 10s}); }
  static HostLost lost(std::vector<int> ranks) {
    return {.host = 1, .ranks = std::move(ranks), .why = "cut"};
  }
};

TEST_F(DriverOfTwoHosts, EndWhenNothingIsLeftOnEither) {
  EXPECT_THAT(on({RankExited{0, kOk}, RankExited{1, kOk}, NothingLeft{0}}), IsEmpty());
  EXPECT_THAT(on({NothingLeft{0}}), IsEmpty()) << "said twice";
  EXPECT_THAT(on({RankExited{2, kOk}, NothingLeft{1}}), ElementsAre(Finish{0}));
}

TEST_F(DriverOfTwoHosts, AHostThatIsLostIsTheFailureAndItsRanksAreGone) {
  on({RankExited{1, kOk}});
  EXPECT_THAT(on({lost({1, 2})}),
              ElementsAre(AnnounceHost{.host = 1, .ranks = {2}, .why = "cut", .first = true}));
  EXPECT_THAT(wait(), ElementsAre(SignalAll{SIGTERM}));
  EXPECT_THAT(
      on({RankExited{0, kTerminated}, NothingLeft{0}}),
      ElementsAre(Announce{.kind = Kind::stopped, .rank = 0, .status = kTerminated}, Finish{1}));
}

TEST_F(DriverOfTwoHosts, WhatFollowsFromALostHostIsAConsequence) {
  on({RankEnds{0, 2, "lost"}, RankExited{0, kRaised}});
  const Actions actions = on({lost({1, 2})});
  EXPECT_THAT(actions,
              ElementsAre(AnnounceHost{.host = 1, .ranks = {1, 2}, .why = "cut", .first = true},
                          ReleaseOutput{0},
                          Announce{.kind = Kind::consequence,
                                   .rank = 0,
                                   .status = kRaised,
                                   .cause = 2,
                                   .reason = "lost"}));
}

TEST_F(DriverOfTwoHosts, AHostThatIsLostAfterItsRanksHaveEndedWellIsNoFailure) {
  on({RankExited{1, kOk}, RankExited{2, kOk}});
  EXPECT_THAT(on({lost({1, 2})}), ElementsAre(AnnounceHost{.host = 1, .ranks = {}, .why = "cut"}));
  EXPECT_THAT(on({RankExited{0, kOk}, NothingLeft{0}}), ElementsAre(Finish{0}));
}

TEST_F(DriverOfTwoHosts, AHostIsLostOnce) {
  on({NothingLeft{1}});
  EXPECT_THAT(on({lost({1, 2})}), IsEmpty());
}

TEST_F(DriverOfTwoHosts, AHostThatDoesNotAnswerTheOrderToKillIsGivenUp) {
  on({Interrupted{SIGINT}});
  EXPECT_THAT(wait(), ElementsAre(SignalAll{SIGKILL}));
  EXPECT_THAT(on({NothingLeft{0}}), IsEmpty());
  EXPECT_THAT(wait(), ElementsAre(Abandon{{1}}, Finish{130}));
  EXPECT_EQ(now, TimePoint{} + 15s);
}

TEST(WaitStatus, SurvivesTheWayThroughItsNumber) {
  for (const ExitStatus status : {kOk, kRaised, kKilled, ExitStatus{.code = 255}})
    EXPECT_EQ(exit_status(wait_status(status)), status);
}

}  // namespace
}  // namespace hvd::job
