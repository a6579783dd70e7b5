#include <csignal>

#include "launcher/driver/driver_testing.h"

namespace hvd::launcher {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Kind = Announce::Kind;

/// The announcement and the action for the signal `by`.
auto ends(int by, int sent, Duration patience) {
  return ElementsAre(Action{AnnounceEnd{{by}, sent, patience}}, Action{SignalAll{sent}});
}

TEST_F(DriverTest, WhatDoesNotEndWhenItIsKilledIsGivenUp) {
  on({Interrupted{SIGTERM}});
  EXPECT_THAT(wait(), ElementsAre(SignalAll{SIGKILL}));
  EXPECT_THAT(wait(), ElementsAre(Abandon{{0}, 9s}));
  EXPECT_THAT(wait(), ElementsAre(Abandon{{0}}, Finish{143}));
}

TEST_F(DriverTest, AJobWhoseRanksAllEndWellEndsWell) {
  EXPECT_THAT(on({WorkerExited{at(0), kOk}}), ElementsAre(RefuseStarts{at(0)}))
      << "others do not wait for it";
  EXPECT_THAT(on({WorkerExited{at(2), kOk}}), IsEmpty());
  EXPECT_EQ(driver.deadline(), std::nullopt) << "a rank may run as long as it likes";
  EXPECT_THAT(on({NothingLeft{}, WorkerExited{at(1), kOk}}), ElementsAre(Finish{0}));
}

TEST_F(DriverTest, WhatRanksLeaveRunningIsEndedStepByStep) {
  EXPECT_THAT(on({WorkerExited{at(0), kOk}, WorkerExited{at(1), kOk}, WorkerExited{at(2), kOk}}),
              ElementsAre(RefuseStarts{at(0)}));
  EXPECT_THAT(wait(), ElementsAre(SignalAll{SIGTERM}));
  EXPECT_EQ(now, TimePoint{} + 1s);
  EXPECT_THAT(wait(), ElementsAre(SignalAll{SIGKILL}));
  EXPECT_EQ(now, TimePoint{} + 6s);
  EXPECT_THAT(on({NothingLeft{}}), ElementsAre(Finish{0}));
}

TEST_F(DriverTest, TheFirstFailureIsAnnouncedAndTheRestGetsGraceThenSignals) {
  EXPECT_THAT(on({WorkerExited{at(1), {.code = 3}}}), ElementsAre(first(at(1), {.code = 3})));
  EXPECT_THAT(wait(), ElementsAre(SignalAll{SIGTERM}));
  EXPECT_EQ(now, TimePoint{} + 1s);
  EXPECT_THAT(on({WorkerExited{at(0), kTerminated}}),
              ElementsAre(Announce{.kind = Kind::stopped, .worker = at(0), .status = kTerminated}));
  EXPECT_THAT(wait(), ElementsAre(SignalAll{SIGKILL}));
  EXPECT_EQ(now, TimePoint{} + 6s);
  EXPECT_THAT(
      on({WorkerExited{at(2), kKilled}, NothingLeft{}}),
      ElementsAre(Announce{.kind = Kind::stopped, .worker = at(2), .status = kKilled}, Finish{3}));
}

TEST_F(DriverTest, ADeathBySignalGives128PlusTheSignal) {
  on({WorkerExited{at(1), kKilled}});
  EXPECT_THAT(on({WorkerExited{at(0), kOk}, WorkerExited{at(2), kOk}, NothingLeft{}}),
              ElementsAre(Finish{137}));
}

TEST_F(DriverTest, OfWhatIsSeenAtOnceADeathBySignalIsTheFirstFailure) {
  EXPECT_THAT(on({WorkerExited{at(0), kRaised}, WorkerExited{at(1), kKilled}}),
              ElementsAre(first(at(1), kKilled),
                          Announce{.kind = Kind::later, .worker = at(0), .status = kRaised}));
}

TEST_F(DriverTest, ARankThatNamesAnotherWaitsForIt) {
  EXPECT_THAT(on({WorkerEnds{at(0), at(1), "connection lost"}}), ElementsAre(HoldOutput{at(0)}));
  EXPECT_THAT(on({WorkerExited{at(0), kRaised}}), IsEmpty());
  EXPECT_THAT(on({WorkerExited{at(1), {.code = 7}}}),
              ElementsAre(first(at(1), {.code = 7}), ReleaseOutput{at(0)},
                          Announce{.kind = Kind::consequence,
                                   .worker = at(0),
                                   .status = kRaised,
                                   .cause = at(1),
                                   .reason = "connection lost"}));
  EXPECT_THAT(on({WorkerExited{at(2), kOk}, NothingLeft{}}), ElementsAre(Finish{7}));
}

TEST_F(DriverTest, BlameThatArrivesWithTheExitCountsToo) {
  EXPECT_THAT(on({WorkerExited{at(0), kRaised}, WorkerEnds{at(0), at(1), "lost"}}),
              ElementsAre(HoldOutput{at(0)}));
}

TEST_F(DriverTest, AChainOfBlameEndsAtTheRankThatBlamesNobody) {
  on({WorkerEnds{at(0), at(1), "a"}, WorkerEnds{at(1), at(2), "b"}, WorkerExited{at(0), kRaised},
      WorkerExited{at(1), kRaised}});
  const Actions actions = on({WorkerExited{at(2), kKilled}});
  ASSERT_FALSE(actions.empty());
  EXPECT_EQ(actions.front(), first(at(2), kKilled));
  EXPECT_EQ(actions.size(), 5u);  // two released, two consequences
}

TEST_F(DriverTest, TheNamedRankIsWaitedForOnlyForASecond) {
  on({WorkerEnds{at(0), at(1), "silent"}, WorkerExited{at(0), kRaised}});
  EXPECT_THAT(wait(), ElementsAre(Announce{.kind = Kind::first,
                                           .worker = at(0),
                                           .status = kRaised,
                                           .cause = at(1),
                                           .reason = "silent"},
                                  ReleaseOutput{at(0)}));
  EXPECT_EQ(now, TimePoint{} + 1s);
}

TEST_F(DriverTest, ARankThatCausesAFailureMayTakeAsLongToExitAsThoseThatFollow) {
  driver = Driver({.workers = kOnOneHost, .grace = 5s});
  on({WorkerEnds{at(0), at(1), "lost"}, WorkerExited{at(0), kRaised}});
  now += 4s;
  EXPECT_THAT(on({}), IsEmpty());
  EXPECT_EQ(on({WorkerExited{at(1), {.code = 3}}}).front(), first(at(1), {.code = 3}));
}

TEST_F(DriverTest, ARankThatNamesOneThatEndedWellIsItselfTheFirstFailure) {
  on({WorkerExited{at(1), kOk}});
  const Actions actions = on({WorkerEnds{at(0), at(1), "gone"}, WorkerExited{at(0), kRaised}});
  EXPECT_THAT(actions, ElementsAre(Announce{.kind = Kind::first,
                                            .worker = at(0),
                                            .status = kRaised,
                                            .cause = at(1),
                                            .reason = "gone"}));
}

TEST_F(DriverTest, RanksThatBlameEachOtherAreSettledWhenNothingIsLeft) {
  on({WorkerEnds{at(0), at(1), "a"}, WorkerEnds{at(1), at(0), "b"}, WorkerExited{at(0), kRaised},
      WorkerExited{at(2), kOk}});
  on({WorkerExited{at(1), kRaised}});
  const Actions actions = on({NothingLeft{}});
  ASSERT_FALSE(actions.empty());
  EXPECT_EQ(actions.back(), Action{Finish{1}});
}

TEST_F(DriverTest, OutputIsHeldForASecondAtMost) {
  on({WorkerEnds{at(0), at(1), "lost"}});
  EXPECT_THAT(wait(), ElementsAre(ReleaseOutput{at(0)}));
  EXPECT_EQ(driver.deadline(), std::nullopt);
}

TEST_F(DriverTest, ARankThatGetsOverTheLossIsReleasedWhenItEndsWell) {
  on({WorkerEnds{at(0), at(1), "lost"}});
  EXPECT_THAT(on({WorkerExited{at(0), kOk}}),
              ElementsAre(RefuseStarts{at(0)}, ReleaseOutput{at(0)}));
}

TEST_F(DriverTest, ALaterWordOfARankReplacesTheEarlierOne) {
  on({WorkerEnds{at(0), at(1), "shutdown was requested"}});
  EXPECT_THAT(wait(), ElementsAre(ReleaseOutput{at(0)}));
  EXPECT_THAT(on({WorkerEnds{at(0), at(2), "lost"}}), ElementsAre(HoldOutput{at(0)}));
  on({WorkerExited{at(0), kRaised}});
  const Actions actions = on({WorkerExited{at(2), kKilled}});
  ASSERT_FALSE(actions.empty());
  EXPECT_EQ(actions.front(), first(at(2), kKilled));
}

TEST_F(DriverTest, ARankThatIsKilledIsTheFirstFailureWhateverItHasReported) {
  on({WorkerEnds{at(1), at(2), "shutdown was requested"}, WorkerEnds{at(0), at(1), "lost"},
      WorkerExited{at(0), kRaised}});
  EXPECT_EQ(on({WorkerExited{at(1), kKilled}}).front(), first(at(1), kKilled));
}

TEST_F(DriverTest, BlameThatMakesNoSenseIsIgnored) {
  EXPECT_THAT(on({WorkerEnds{at(0), at(0), "me"}}), IsEmpty());
  EXPECT_THAT(on({WorkerExited{at(0), kRaised}}), ElementsAre(first(at(0), kRaised)));
}

TEST_F(DriverTest, AnInterruptIsFollowedByTheOtherSignalsInTime) {
  EXPECT_THAT(on({Interrupted{SIGINT}}), ends(SIGINT, SIGINT, 10s));
  EXPECT_THAT(
      on({WorkerExited{at(1), kInterrupted}}),
      ElementsAre(Announce{.kind = Kind::stopped, .worker = at(1), .status = kInterrupted}));
  EXPECT_THAT(
      on({WorkerExited{at(2), {.code = 130}}}),
      ElementsAre(Announce{.kind = Kind::stopped, .worker = at(2), .status = {.code = 130}}));
  EXPECT_THAT(wait(), ElementsAre(SignalAll{SIGTERM}));
  EXPECT_EQ(now, TimePoint{} + 10s);
  EXPECT_THAT(wait(), ElementsAre(SignalAll{SIGKILL}));
  EXPECT_EQ(now, TimePoint{} + 15s);
  EXPECT_THAT(on({NothingLeft{}}), ElementsAre(Finish{130}));
}

TEST_F(DriverTest, EachFurtherInterruptTakesTheNextStepAtOnce) {
  on({Interrupted{SIGINT}});
  now += 500ms;
  EXPECT_THAT(on({Interrupted{SIGINT}}), ends(SIGINT, SIGTERM, 5s));
  EXPECT_THAT(on({Interrupted{SIGINT}}), ends(SIGINT, SIGKILL, 10s));
  EXPECT_THAT(on({WorkerExited{at(0), kKilled}, WorkerExited{at(1), kKilled},
                  WorkerExited{at(2), kKilled}}),
              ::testing::Each(::testing::VariantWith<Announce>(
                  ::testing::Field(&Announce::kind, Kind::stopped))));
  EXPECT_THAT(on({NothingLeft{}}), ElementsAre(Finish{130}));
}

TEST_F(DriverTest, AnInterruptThatIsHandedOnBySomebodyElseIsTheSameOne) {
  on({Interrupted{SIGINT}});
  now += 499ms;
  EXPECT_THAT(on({Interrupted{SIGINT}}), IsEmpty());
  EXPECT_THAT(on({Interrupted{SIGTERM}}), ends(SIGTERM, SIGTERM, 5s));
  EXPECT_THAT(on({NothingLeft{}}), ElementsAre(Finish{130})) << "the first signal counts";
}

TEST_F(DriverTest, AnotherSigtermWithinTwoSecondsIsTheSameOne) {
  EXPECT_THAT(on({Interrupted{SIGTERM}, Interrupted{SIGTERM}}), ends(SIGTERM, SIGTERM, 5s));
  now += 1999ms;
  EXPECT_THAT(on({Interrupted{SIGHUP}}), IsEmpty());
  EXPECT_THAT(on({Interrupted{.signal = SIGTERM, .caller_gone = true}}), IsEmpty());
  now += 1ms;
  EXPECT_THAT(on({Interrupted{SIGTERM}}), ends(SIGTERM, SIGKILL, 10s));
  EXPECT_THAT(on({NothingLeft{}}), ElementsAre(Finish{143}));
}

TEST_F(DriverTest, ASigintAfterASigtermIsTheNextStep) {
  on({Interrupted{SIGTERM}});
  EXPECT_THAT(on({Interrupted{SIGINT}}), ends(SIGINT, SIGKILL, 10s));
}

TEST_F(DriverTest, WhatInterruptedRanksLeaveRunningIsEndedAfterTheGrace) {
  on({Interrupted{SIGINT}});
  on({WorkerExited{at(0), kOk}, WorkerExited{at(1), kOk}, WorkerExited{at(2), kOk}});
  EXPECT_THAT(wait(), ElementsAre(SignalAll{SIGTERM}));
  EXPECT_EQ(now, TimePoint{} + 1s);
}

TEST_F(DriverTest, AnInterruptDoesNotPutOffTheEndAfterAFailure) {
  on({WorkerExited{at(1), kRaised}});
  now += 300ms;
  EXPECT_THAT(on({Interrupted{SIGINT}}), ends(SIGINT, SIGINT, 700ms));
  EXPECT_THAT(wait(), ElementsAre(SignalAll{SIGTERM}));
  EXPECT_EQ(now, TimePoint{} + 1s);
  EXPECT_THAT(on({NothingLeft{}}), ElementsAre(Finish{1}));
}

TEST_F(DriverTest, TheGraceIsAlsoForThoseThatAreToldToEnd) {
  driver = Driver({.workers = kOnOneHost, .grace = 60s});
  EXPECT_THAT(on({Interrupted{SIGINT}}), ends(SIGINT, SIGINT, 60s));
  driver = Driver({.workers = kOnOneHost, .grace = 60s});
  EXPECT_THAT(on({Interrupted{SIGTERM}}), ends(SIGTERM, SIGTERM, 60s));
  EXPECT_THAT(wait(), ElementsAre(SignalAll{SIGKILL}));
  EXPECT_EQ(now, TimePoint{} + 60s);
}

TEST_F(DriverTest, AnInterruptionAfterAFailureKeepsTheFailuresCode) {
  on({WorkerExited{at(1), {.code = 9}}});
  EXPECT_THAT(on({Interrupted{SIGTERM}}), ends(SIGTERM, SIGTERM, 5s));
  EXPECT_THAT(on({NothingLeft{}}), ElementsAre(Finish{9}));
}

TEST_F(DriverTest, WhatIgnoresSigtermIsKilled) {
  on({Interrupted{SIGTERM}});
  EXPECT_THAT(wait(), ElementsAre(SignalAll{SIGKILL}));
  EXPECT_EQ(now, TimePoint{} + 5s);
}

class DriverOfTwoHosts : public DriverTest {
 protected:
  DriverOfTwoHosts() { driver = Driver({.workers = {at(0), there(0), there(1)}, .farewell = 10s}); }
  static HostLost lost() { return {.host = 1, .why = "cut"}; }
};

TEST_F(DriverOfTwoHosts, EndWhenNothingIsLeftOnEither) {
  EXPECT_THAT(on({WorkerExited{at(0), kOk}, WorkerExited{there(0), kOk}, NothingLeft{0}}),
              ElementsAre(RefuseStarts{at(0)}));
  EXPECT_THAT(on({NothingLeft{0}}), IsEmpty()) << "reported twice";
  EXPECT_THAT(on({WorkerExited{there(1), kOk}, NothingLeft{1}}), ElementsAre(Finish{0}));
}

TEST_F(DriverOfTwoHosts, AHostThatIsLostIsTheFailureAndItsRanksAreGone) {
  on({WorkerExited{there(0), kOk}});
  EXPECT_THAT(on({lost()}), ElementsAre(AnnounceHost{
                                .host = 1, .workers = {there(1)}, .why = "cut", .first = true}));
  EXPECT_THAT(wait(), ElementsAre(SignalAll{SIGTERM}));
  EXPECT_THAT(on({WorkerExited{at(0), kTerminated}, NothingLeft{0}}),
              ElementsAre(Announce{.kind = Kind::stopped, .worker = at(0), .status = kTerminated},
                          Finish{1}));
}

TEST_F(DriverOfTwoHosts, WhatFollowsFromALostHostIsAConsequence) {
  on({WorkerEnds{at(0), there(1), "lost"}, WorkerExited{at(0), kRaised}});
  const Actions actions = on({lost()});
  EXPECT_THAT(
      actions,
      ElementsAre(
          AnnounceHost{.host = 1, .workers = {there(0), there(1)}, .why = "cut", .first = true},
          ReleaseOutput{at(0)},
          Announce{.kind = Kind::consequence,
                   .worker = at(0),
                   .status = kRaised,
                   .cause = there(1),
                   .reason = "lost"}));
}

TEST_F(DriverOfTwoHosts, AHostThatIsLostAfterItsRanksHaveEndedWellIsNoFailure) {
  on({WorkerExited{there(0), kOk}, WorkerExited{there(1), kOk}});
  EXPECT_THAT(on({lost()}), ElementsAre(AnnounceHost{.host = 1, .workers = {}, .why = "cut"}));
  EXPECT_THAT(on({WorkerExited{at(0), kOk}, NothingLeft{0}}), ElementsAre(Finish{0}));
}

TEST_F(DriverOfTwoHosts, AHostIsLostOnce) {
  on({NothingLeft{1}});
  EXPECT_THAT(on({lost()}), IsEmpty());
}

TEST_F(DriverOfTwoHosts, AHostThatDoesNotAnswerTheOrderToKillIsGivenUp) {
  on({Interrupted{SIGTERM}});
  EXPECT_THAT(wait(), ElementsAre(SignalAll{SIGKILL}));
  EXPECT_THAT(on({NothingLeft{0}}), IsEmpty());
  EXPECT_THAT(wait(), ElementsAre(Abandon{{1}, 9s}));
  EXPECT_THAT(wait(), ElementsAre(Abandon{{1}}, Finish{143}));
  EXPECT_EQ(now, TimePoint{} + 15s);
}

TEST(WaitStatus, SurvivesTheWayThroughItsNumber) {
  for (const ExitStatus status : {kOk, kRaised, kKilled, ExitStatus{.code = 255}})
    EXPECT_EQ(exit_status(wait_status(status)), status);
}

/// A job of the workers 0, 1 and 2 that may lose all but one, with a free slot on host 0.
class ElasticDriverTest : public ::testing::Test {
 protected:
  static DriverOptions options() {
    DriverOptions made{.workers = kOnOneHost};
    const elastic::Settings settings{.min = 2, .target = 3, .patience = 600s};
    made.elastic = elastic::begin(settings, {{0, "a", 3}}, assign_ranks(kOnOneHost, 0));
    return made;
  }
  /// Without explanations.
  Actions on(std::vector<Event> events) {
    Actions actions = driver.on(now, std::move(events));
    std::erase_if(actions, [](const Action& one) { return std::holds_alternative<Explain>(one); });
    return actions;
  }
  static Action announce(Kind kind, const WorkerId& worker, ExitStatus status) {
    return Announce{.kind = kind, .worker = worker, .status = status};
  }
  static constexpr WorkerId kSecond{.host = 0, .slot = 1, .incarnation = 1};
  static constexpr const char* kDone =
      "rank 0 in slot 0 of a has ended with exit code 0, which means that the job is done";

  TimePoint now{};
  Driver driver{options()};
};

TEST_F(ElasticDriverTest, ALostWorkerIsAnnouncedAndReplaced) {
  EXPECT_THAT(on({WorkerExited{at(1), kKilled}, NothingLeft{}}),
              ElementsAre(announce(Kind::survived, at(1), kKilled),
                          elastic::Abandon{0, "rank 1 in slot 1 of a was lost"},
                          elastic::StartWorker{kSecond}))
      << "the host was left with no worker before the new one started: the job goes on";
  on({elastic::WorkerAsks{at(0)}});
  EXPECT_THAT(on({elastic::WorkerAsks{at(2)}}),
              ElementsAre(::testing::VariantWith<elastic::Begin>(::testing::_)));
  EXPECT_EQ(driver.deadline(), std::nullopt);
}

TEST_F(ElasticDriverTest, TheExitOfAWorkerThatLeftIsNoLoss) {
  const std::string why = "rank 1 in slot 1 of a leaves at a commit";
  EXPECT_THAT(on({WorkerExited{at(1), {.code = 143}}, elastic::WorkerLeaves{at(1)}}),
              ElementsAre(elastic::Say{why + "; the job goes on without it"},
                          elastic::Dismiss{at(1), why, false}, elastic::Abandon{0, why},
                          elastic::StartWorker{kSecond}));
}

TEST_F(ElasticDriverTest, AJobWhoseWorkersAllLeaveEndsWithTheCodeOfSigterm) {
  on({elastic::WorkerLeaves{at(0)}, elastic::WorkerLeaves{at(1)}, elastic::WorkerLeaves{at(2)}});
  EXPECT_EQ(driver.deadline(), std::nullopt) << "they may take their time";
  on({WorkerExited{at(1), {.code = 143}}, WorkerExited{at(2), {.code = 143}}});
  const auto actions = on({WorkerExited{at(0), {.code = 143}}, NothingLeft{}});
  EXPECT_THAT(actions, ::testing::Contains(Action{Finish{143}}));
}

TEST_F(ElasticDriverTest, WhatFollowsFromALossIsNotHeldBack) {
  EXPECT_THAT(on({WorkerEnds{at(0), at(1), "lost"}}), IsEmpty());
}

TEST_F(ElasticDriverTest, AShortageEndsTheJobWithTheCodeOfItsLastFailure) {
  on({WorkerExited{at(1), kKilled}});
  const auto actions = on({WorkerExited{at(2), {.code = 5}}, WorkerExited{kSecond, kRaised}});
  ASSERT_EQ(actions.size(), 8u);
  EXPECT_EQ(actions[0], announce(Kind::survived, at(2), {.code = 5}));
  EXPECT_TRUE(std::holds_alternative<elastic::Say>(actions[1])) << "of two failures";
  EXPECT_TRUE(std::holds_alternative<elastic::Say>(actions[3])) << "it waits for the second one";
  EXPECT_EQ(actions[4], announce(Kind::first, kSecond, kRaised));
  EXPECT_TRUE(std::holds_alternative<elastic::End>(actions[5]));
  EXPECT_TRUE(std::holds_alternative<AnnounceShortage>(actions[6]));
  EXPECT_EQ(actions[7], Action{NoMoreWorkers{}});
  now += 1s;
  EXPECT_THAT(on({}), ElementsAre(SignalAll{SIGTERM}));
  EXPECT_THAT(on({WorkerExited{at(0), kTerminated}, NothingLeft{}}),
              ElementsAre(announce(Kind::stopped, at(0), kTerminated), Finish{1}));
}

TEST_F(ElasticDriverTest, AJobWhoseWorkersEndWellEndsWell) {
  on({WorkerExited{at(1), kKilled}});
  EXPECT_THAT(on({WorkerExited{at(0), kOk}}),
              ElementsAre(elastic::Dismiss{kSecond, kDone, true}, elastic::Close{kDone}));
  EXPECT_THAT(on({WorkerExited{kSecond, kTerminated}}), IsEmpty()) << "it does not count";
  EXPECT_THAT(on({WorkerExited{at(2), kOk}, NothingLeft{}}),
              ElementsAre(Finish{0}, NoMoreWorkers{}));
}

TEST_F(ElasticDriverTest, AWorkerThatFailsAfterAnotherEndedWellFailsTheJob) {
  on({WorkerExited{at(0), kOk}});
  EXPECT_THAT(
      on({WorkerExited{at(1), kRaised}}),
      ElementsAre(elastic::Say{kDone}, announce(Kind::first, at(1), kRaised), NoMoreWorkers{}));
  EXPECT_THAT(on({WorkerExited{at(2), kOk}, NothingLeft{}}), ElementsAre(Finish{1}));
}

TEST_F(ElasticDriverTest, ASignalEndsItAsAnyJob) {
  EXPECT_THAT(on({Interrupted{SIGTERM}}), ElementsAre(AnnounceEnd{{SIGTERM}, SIGTERM, 5s},
                                                      SignalAll{SIGTERM}, NoMoreWorkers{}));
  EXPECT_THAT(on({WorkerExited{at(1), kTerminated}}),
              ElementsAre(announce(Kind::stopped, at(1), kTerminated)))
      << "no replacement";
}

TEST_F(ElasticDriverTest, ALostHostMayEndTheJob) {
  const auto actions = on({HostLost{.host = 0, .why = "gone", .exit_code = 9}});
  EXPECT_EQ(actions[0],
            (Action{AnnounceHost{.host = 0, .workers = kOnOneHost, .why = "gone", .first = true}}));
  EXPECT_THAT(actions, ::testing::Contains(Action{Finish{9}}));
}

}  // namespace
}  // namespace hvd::launcher
