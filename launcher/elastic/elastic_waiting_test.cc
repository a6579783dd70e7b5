// What the user is told while the job waits: for members that do not ask, and for more workers.
#include <algorithm>

#include "launcher/elastic/elastic_testing.h"

namespace hvd::launcher::elastic {
namespace {

using namespace std::chrono_literals;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::VariantWith;

const Action kExplain = ExplainWait{};

/// The lines about too few workers.
std::vector<std::string> told(const std::vector<Action>& actions) {
  std::vector<std::string> lines;
  for (const Action& action : actions)
    if (const auto* say = std::get_if<Say>(&action))
      if (say->line.find("--min-np") != say->line.npos) lines.push_back(say->line);
  return lines;
}

std::string waits_for(const std::string& what, const std::string& few = "1 worker is left") {
  return few +
         ", fewer than the 2 of --min-np: the job waits up to 600 s (--elastic-timeout) for " +
         what;
}

TEST_F(ElasticTest, AWaitForAMemberIsExplainedOnceAfterAThirdOfItsTime) {
  start(settings(1, 3), {a(0), a(1), b(0)}, 2, 1);
  lose(a(1));
  now += 3s;
  EXPECT_THAT(ask(a(0)), IsEmpty());
  EXPECT_EQ(deadline(state), TimePoint{} + 13s);
  now += 9s;
  EXPECT_THAT(tick(), IsEmpty());
  now += 1s;
  EXPECT_THAT(tick(), ElementsAre(kExplain));
  EXPECT_EQ(deadline(state), TimePoint{} + 33s);
  now += 1s;
  EXPECT_THAT(tick(), IsEmpty()) << "once is enough";
  EXPECT_THAT(wait(), Contains(VariantWith<Begin>(::testing::_)));
  EXPECT_THAT(ranks(), ElementsAre(a(0))) << "the other one was given up";
}

TEST_F(ElasticTest, NothingIsExplainedWhenAllHaveAsked) {
  Settings with = settings(2, 2);
  with.discovers = true;
  start(with, {a(0), b(0), b(1)}, 1, 2);
  ask(a(0));
  on(HostGone{1});
  EXPECT_EQ(deadline(state), TimePoint{} + 600s) << "the job waits for a slot";
  now += 100s;
  EXPECT_THAT(tick(), IsEmpty());
}

TEST_F(ElasticTest, AMemberThatWaitsNoLongerIsNotExplained) {
  start(settings(1, 2), {a(0), a(1), b(0)}, 2, 1);
  ask(a(0));
  lose(a(0));
  EXPECT_EQ(deadline(state), std::nullopt);
  now += 100s;
  EXPECT_THAT(tick(), IsEmpty());
  EXPECT_THAT(ask(a(1)), IsEmpty()) << "its wait begins now";
  EXPECT_EQ(deadline(state), now + 10s);
}

WorkersStopped stopped(const std::vector<WorkerId>& workers) { return {workers}; }

TEST_F(ElasticTest, AStoppedMemberIsGivenUpAfterTheHeartbeat) {
  Settings with = settings(1, 2);
  with.heartbeat = 6s;
  start(with, {a(0), a(1), b(0)}, 2, 1);
  ask(a(0));
  for (int looks = 0; looks < 2; ++looks) {
    EXPECT_EQ(deadline(state), now + 2s);
    EXPECT_THAT(wait(), ElementsAre(Action(LookForStopped{})));
    EXPECT_THAT(on(stopped({a(0), a(1)})), IsEmpty()) << "perhaps only for a moment";
  }
  EXPECT_THAT(wait(), ElementsAre(Action(LookForStopped{})));
  const auto actions = on(stopped({a(0), a(1), b(0)}));
  EXPECT_THAT(actions, Contains(Action(Kill{a(1)})));
  EXPECT_THAT(actions, Not(Contains(Action(Kill{a(0)})))) << "it has asked";
  EXPECT_THAT(actions, Not(Contains(Action(Kill{b(0)})))) << "it was not in the answers before";
  EXPECT_THAT(
      actions,
      Contains(Action(Say{"rank 1 in slot 1 of a was given up: its process is stopped (SIGSTOP), "
                          "and others wait for it; the job goes on without it"})));
  EXPECT_THAT(ask(b(0)), ElementsAre(VariantWith<Begin>(::testing::_)));
}

TEST_F(ElasticTest, AMemberThatHasRunBetweenTwoLooksIsNotGivenUp) {
  Settings with = settings(1, 2);
  with.heartbeat = 6s;
  start(with, {a(0), a(1), b(0)}, 2, 1);
  ask(a(0));
  for (int looks = 0; looks < 4; ++looks) {
    EXPECT_THAT(wait(), ElementsAre(Action(LookForStopped{})));
    EXPECT_THAT(on(looks == 1 ? stopped({}) : stopped({a(1)})), IsEmpty()) << looks;
  }
}

TEST_F(ElasticTest, InTheFirstGenerationStoppedMembersAreLookedForAtAnyTime) {
  Settings with = settings(1, 2);
  with.heartbeat = 6s;
  start(with, {a(0), a(1)}, 2);
  now += 1000s;
  for (int looks = 0; looks < 3; ++looks) {
    EXPECT_THAT(tick(), ElementsAre(Action(LookForStopped{.only_in_init = true})));
    EXPECT_EQ(deadline(state), now + 2s);
    EXPECT_EQ(looks == 2, std::ranges::count(on(stopped({a(1)})), Action(Kill{a(1)})) == 1);
    now += 2s;
  }
}

TEST_F(ElasticTest, WithoutAHeartbeatNobodyIsLookedFor) {
  start(settings(1, 2), {a(0), a(1)}, 2);
  EXPECT_EQ(deadline(state), std::nullopt);
  for (int answers = 0; answers < 4; ++answers) EXPECT_THAT(on(stopped({a(1)})), IsEmpty());
}

TEST(StoppedSearch, AnAnswerMayComeAfterTheNextLook) {
  StoppedSearch search{TimePoint{}};
  TimePoint now{};
  for (int answers = 1; answers <= 3; ++answers) {
    search.look(now += 2s, 6s);
    search.look(now += 2s, 6s);
    EXPECT_THAT(search.answer({a(1)}), testing::SizeIs(answers == 3 ? 1 : 0));
  }
}

TEST(StoppedSearch, AnswersFromBeforeTheLauncherWasStoppedDoNotCount) {
  StoppedSearch search{TimePoint{}};
  for (int answers = 0; answers < 2; ++answers) {
    search.look(TimePoint{} + 1s, 6s);
    EXPECT_THAT(search.answer({a(1)}), IsEmpty());
  }
  search.look(TimePoint{} + 10s, 6s);
  EXPECT_THAT(search.answer({a(1)}), IsEmpty());
}

/// A generation of a(0) and a(1) begins.
class ElasticForming : public ElasticTest {
 protected:
  void SetUp() override {
    Settings with = settings(1, 2);
    with.heartbeat = 6s;
    with.start = 10s;
    start(with, {a(0), a(1), b(0)}, 2, 1);
    lose(b(0));
    ask(a(0));
    EXPECT_THAT(ask(a(1)), ElementsAre(VariantWith<Begin>(::testing::_)));
  }
  const Action look_in_init = LookForStopped{.only_in_init = true};
};

TEST_F(ElasticForming, AMemberThatIsStoppedBeforeItConnectsIsGivenUpAfterTheHeartbeat) {
  for (int looks = 0; looks < 3; ++looks) {
    EXPECT_EQ(deadline(state), now + 2s);
    EXPECT_THAT(wait(), ElementsAre(look_in_init));
    const auto actions = on(stopped({a(1)}));
    EXPECT_EQ(looks == 2, std::ranges::count(actions, Action(Kill{a(1)})) == 1);
    const auto abandons = [](const Action& one) { return std::holds_alternative<Abandon>(one); };
    EXPECT_EQ(looks == 2, std::ranges::any_of(actions, abandons));
  }
}

TEST_F(ElasticForming, StoppedMembersAreLookedForAsLongAsTheStartMayTake) {
  for (int looks = 0; looks < 4; ++looks) {
    EXPECT_EQ(deadline(state), now + 2s);
    EXPECT_THAT(wait(), ElementsAre(look_in_init));
  }
  EXPECT_THAT(on(stopped({a(1)})), IsEmpty());
  EXPECT_EQ(deadline(state), now + 2s);
  EXPECT_THAT(wait(), IsEmpty());
  EXPECT_EQ(deadline(state), std::nullopt);
  EXPECT_THAT(on(stopped({a(1)})), IsEmpty()) << "it has connected, or others gave it up";
}

TEST_F(ElasticForming, AMemberThatAsksEndsIt) {
  now += 1s;
  EXPECT_THAT(ask(a(0)), IsEmpty());
  EXPECT_EQ(deadline(state), now + 2s);
  EXPECT_THAT(wait(), ElementsAre(Action(LookForStopped{}))) << "others need not be in init";
}

TEST_F(ElasticForming, AMemberAloneConnectsToNobody) {
  lose(a(1));
  ask(a(0));
  EXPECT_THAT(ranks(), ElementsAre(a(0)));
  EXPECT_FALSE(state.forming);
}

TEST_F(ElasticTest, EachChangeOfTheGenerationIsExplained) {
  start(settings(1, 2), {a(0), a(1)}, 2);
  for (int change = 0; change < 3; ++change) {
    const TimePoint asked = now;
    EXPECT_THAT(ask(a(0)), IsEmpty());
    EXPECT_THAT(wait(), ElementsAre(kExplain));
    EXPECT_EQ(now, asked + 10s);
    EXPECT_THAT(ask(a(1)), ElementsAre(VariantWith<Begin>(::testing::_)));
    now += 50s;
    EXPECT_THAT(tick(), IsEmpty());
  }
}

TEST_F(ElasticTest, AShortageIsToldOnceWithWhatTheJobWaitsFor) {
  start(settings(2, 2), {a(0), a(1)}, 2);
  EXPECT_THAT(lose(a(1)),
              ElementsAre(abandon(0, "rank 1 in slot 1 of a was lost"), StartWorker{a(1, 1)},
                          Say{waits_for("a worker that is starting")}));
  EXPECT_THAT(told(ask(a(0))), IsEmpty());
  now += 60s;
  EXPECT_THAT(told(tick()), IsEmpty());
  EXPECT_THAT(ask(a(1, 1)), ElementsAre(VariantWith<Begin>(::testing::_)));
  EXPECT_THAT(told(lose(a(0))), IsEmpty()) << "a is dropped, and nothing is left to wait for";
}

TEST_F(ElasticTest, TheNextShortageIsToldAgain) {
  Settings with = settings(2, 2);
  with.discovers = true;
  start(with, {a(0), b(0)}, 1, 2);
  EXPECT_THAT(told(lose(b(0))), ElementsAre(waits_for("a worker that is starting")));
  ask(a(0));
  ask(b(0, 1));
  EXPECT_THAT(ranks(), ElementsAre(a(0), b(0, 1)));
  EXPECT_THAT(told(lose(b(0, 1))), ElementsAre(waits_for("slots from the discovery script")))
      << "b is dropped";
}

TEST_F(ElasticTest, AShortageNamesWhatMayEndIt) {
  Settings with = settings(2, 2);
  with.cooldown = Cooldown{10s, 60s};
  start(with, {a(0), a(1)}, 2);
  EXPECT_THAT(told(lose(a(1))), ElementsAre(waits_for("the end of a host's cooldown")));

  start(settings(2, 2), {a(0), a(1)}, 2);
  EXPECT_THAT(told(on(WorkerLeaves{a(1)})), IsEmpty()) << "perhaps all leave";
  EXPECT_EQ(deadline(state), now + 2s);
  EXPECT_THAT(told(wait()), ElementsAre(waits_for("the slot of a worker that has not ended yet")));
  EXPECT_THAT(told(tick()), IsEmpty());

  with = settings(2, 4);
  with.discovers = true;
  start(with, {a(0), a(1), b(0), b(1)}, 2, 2);
  EXPECT_THAT(told(on(HostsFound{{}})),
              ElementsAre(waits_for("slots from the discovery script", "0 workers are left")));
}

TEST_F(ElasticTest, AShortageNamesAllIfTheWorkersThatStartAreTooFew) {
  Settings with = settings(2, 2);
  with.discovers = true;
  start(with, {a(0), b(0)}, 0, 1);
  on(HostsFound{{{1, "b", 1}}});
  EXPECT_THAT(told(lose(b(0))), IsEmpty()) << "it was told that a was removed";
  start(with, {a(0), b(0)}, 1, 1);
  EXPECT_THAT(told(on(HostsFound{{{2, "c", 1}}})),
              ElementsAre(waits_for("a worker that is starting, slots from the discovery script",
                                    "0 workers are left")));
}

TEST_F(ElasticTest, AJobThatEndsAtOnceDoesNotSayThatItWaits) {
  start(settings(2, 2), {a(0), b(0)}, 1, 1);
  EXPECT_THAT(told(on(HostGone{1})), IsEmpty());
  EXPECT_TRUE(state.over);
}

TEST_F(ElasticTest, AfterTheLastResetAJobDoesNotWaitForWorkers) {
  Settings with = settings(2, 3);
  with.reset_limit = 0;
  start(with, {a(0), a(1), b(0)}, 2, 1);
  lose(b(0));
  EXPECT_THAT(lose(a(1)), ElementsAre(abandon(0, "rank 1 in slot 1 of a was lost")));
  EXPECT_EQ(reason(ask(a(0))), "the job was reset 0 times, which is the limit (--reset-limit)");
}

}  // namespace
}  // namespace hvd::launcher::elastic
