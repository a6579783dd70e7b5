#include <random>

#include "launcher/elastic/elastic_testing.h"

namespace hvd::launcher::elastic {
namespace {

using namespace std::chrono_literals;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::VariantWith;

TEST_F(ElasticTest, AHealthyJobNeedsNothing) {
  start(settings(2, 4), {a(0), a(1), b(0), b(1)}, 2, 2);
  EXPECT_THAT(tick(), IsEmpty());
  EXPECT_EQ(deadline(state), std::nullopt);
  EXPECT_THAT(explanation, IsEmpty());
}

TEST_F(ElasticTest, SurvivorsBeginWithoutAReplacement) {
  start(settings(2, 4), {a(0), a(1), b(0), b(1)}, 2, 2);
  EXPECT_THAT(lose(a(0)),
              ElementsAre(abandon(0, "rank 0 in slot 0 of a was lost"), StartWorker{a(0, 1)}));
  EXPECT_THAT(ask(a(1)), IsEmpty());
  EXPECT_THAT(ask(b(1)), IsEmpty());
  EXPECT_THAT(ask(b(0)), ElementsAre(VariantWith<Begin>(::testing::_)));
  EXPECT_THAT(ranks(), ElementsAre(a(1), b(0), b(1)));
  EXPECT_EQ(state.assignment.generation(), 1u);
}

TEST_F(ElasticTest, SurvivorsThatAskBeforeTheLossIsKnownWaitForIt) {
  start(settings(1, 1), {a(0), a(1)}, 2);
  EXPECT_THAT(ask(a(1)), IsEmpty());
  EXPECT_THAT(lose(a(0)), Contains(VariantWith<Begin>(::testing::_)));
  EXPECT_THAT(ranks(), ElementsAre(a(1)));
}

TEST_F(ElasticTest, AReplacementJoinsWhenTheSurvivorsCommit) {
  start(settings(1, 2), {a(0), a(1)}, 2);
  lose(a(0));
  ask(a(1));
  EXPECT_THAT(ask(a(0, 1)), ElementsAre(Tell{.added = true}));
  EXPECT_THAT(ranks(), ElementsAre(a(1))) << "it does not disturb the survivors";
  EXPECT_THAT(ask(a(1)), ElementsAre(VariantWith<Begin>(::testing::_)));
  EXPECT_THAT(ranks(), ElementsAre(a(1), a(0, 1))) << "rank 0 has the state";
  EXPECT_EQ(state.assignment.generation(), 2u);
}

TEST_F(ElasticTest, NewWorkersAreStartedUpToTheTarget) {
  start(settings(1, 3), {a(0)}, 2, 2);
  EXPECT_THAT(tick(), ElementsAre(StartWorker{a(1)}, StartWorker{b(0)}));
  EXPECT_THAT(explanation[0], HasSubstr("starts worker 0 in slot 1 of a: the job has 1 of 3"));
}

TEST_F(ElasticTest, NewWorkersJoinTogetherUnlessOneIsSlow) {
  start(settings(1, 3), {a(0)}, 3);
  tick();
  EXPECT_THAT(ask(a(1)), IsEmpty()) << "the other one is starting";
  EXPECT_THAT(wait(), ElementsAre(Tell{.added = true}));
  EXPECT_EQ(now, TimePoint{} + kGathering);
  EXPECT_EQ(deadline(state), std::nullopt);
  EXPECT_THAT(ask(a(2)), IsEmpty()) << "they know already";
  ask(a(0));
  EXPECT_THAT(ranks(), SizeIs(3));
}

TEST_F(ElasticTest, AHostWithTwoFailuresIsDroppedAndItsOtherWorkersGoOn) {
  start(settings(1, 4), {a(0), a(1), a(2), b(0)}, 3, 1);
  EXPECT_THAT(lose(a(0)), Contains(Action{StartWorker{a(0, 1)}}));
  EXPECT_THAT(lose(a(1)),
              ElementsAre(Say{"no more workers are started on a: 2 workers failed or left there"},
                          abandon(0, "rank 1 in slot 1 of a was lost")));
  ask(a(2));
  ask(b(0));
  EXPECT_THAT(ranks(), ElementsAre(a(2), b(0)));
}

TEST_F(ElasticTest, ANewWorkerWithAnotherVersionIsRejected) {
  start(settings(1, 3), {a(0), a(1)}, 2, 1);
  tick();
  EXPECT_THAT(ask(b(0), "2.0"), ElementsAre(Tell{.added = true})) << "theirs is not known yet";
  const std::string why =
      " in slot 0 of b was rejected: it has Horovod 2.0, and rank 0 in slot 0 of a has Horovod "
      "1.0; install the same one";
  EXPECT_THAT(ask(a(0)),
              ElementsAre(Say{"worker 0" + why}, Dismiss{b(0), "worker 0" + why, false}));
  ask(a(1));
  EXPECT_THAT(ranks(), ElementsAre(a(0), a(1)));
  EXPECT_THAT(on(WorkerEnded{b(0)}), ElementsAre(StartWorker{b(0, 1)})) << "the failure was one";
  EXPECT_THAT(ask(b(0, 1), "2.0"),
              ElementsAre(Say{"worker 1" + why}, Dismiss{b(0, 1), "worker 1" + why, false},
                          Say{"no more workers are started on b: 2 workers failed or left there"}));
  EXPECT_THAT(on(WorkerEnded{b(0, 1)}), IsEmpty());
  EXPECT_EQ(state.assignment.generation(), 1u) << "nobody was disturbed again";
}

TEST_F(ElasticTest, AReplacementThatFailsCountsAsAFailureOfItsHost) {
  start(settings(1, 2), {a(0), a(1)}, 2);
  lose(a(0));
  EXPECT_THAT(lose(a(0, 1)), ElementsAre(VariantWith<Say>(::testing::_))) << "not started again";
  EXPECT_THAT(ask(a(1)), Contains(VariantWith<Begin>(::testing::_)));
}

TEST_F(ElasticTest, ALostHostTakesItsWorkersAndIsNotUsedAgain) {
  start(settings(1, 4), {a(0), a(1), b(0), b(1)}, 2, 2);
  EXPECT_THAT(on(HostGone{1}), ElementsAre(Say{"no more workers are started on b: it was lost"},
                                           abandon(0, "host b was lost")));
  ask(a(0));
  ask(a(1));
  EXPECT_THAT(ranks(), ElementsAre(a(0), a(1)));
}

TEST_F(ElasticTest, WithFewerThanTheMinimumTheJobWaitsForSlots) {
  Settings with = settings(2, 2);
  with.discovers = true;
  start(with, {a(0), a(1)}, 2);
  lose(a(0));
  lose(a(0, 1));  // so a is dropped
  EXPECT_THAT(ask(a(1)), IsEmpty());
  EXPECT_EQ(deadline(state), TimePoint{} + 600s);
  now += 10s;
  EXPECT_THAT(on(HostsFound{{{0, "a", 2}, {1, "b", 1}}}), ElementsAre(StartWorker{b(0)}));
  EXPECT_THAT(ask(b(0)), ElementsAre(VariantWith<Begin>(::testing::_)));
  EXPECT_THAT(ranks(), ElementsAre(a(1), b(0)));
  EXPECT_EQ(deadline(state), std::nullopt);
}

TEST_F(ElasticTest, AfterTheTimeoutTheJobEnds) {
  Settings with = settings(2, 2);
  with.discovers = true;
  start(with, {a(0), b(0)}, 1, 1);
  on(HostGone{1});
  ask(a(0));
  EXPECT_EQ(reason(wait()),
            "1 worker is left, fewer than the 2 of --min-np, and no others joined within 600 s "
            "(--elastic-timeout)");
  EXPECT_EQ(deadline(state), std::nullopt);
  EXPECT_THAT(tick(), IsEmpty());
}

TEST_F(ElasticTest, WithoutHopeTheJobEndsAtOnce) {
  start(settings(2, 2), {a(0), b(0)}, 1, 1);
  EXPECT_EQ(reason(on(HostGone{1})),
            "1 worker is left, fewer than the 2 of --min-np, and there is no slot for another one");
}

TEST_F(ElasticTest, WithoutASurvivorTheJobEnds) {
  start(settings(1, 2), {a(0), b(0)}, 1, 1);
  lose(a(0));
  ask(a(0, 1));
  EXPECT_EQ(reason(lose(b(0))), "no worker is left that has the state of the job");
}

TEST_F(ElasticTest, TheNumberOfResetsIsLimited) {
  Settings with = settings(1, 3);
  with.reset_limit = 1;
  start(with, {a(0), a(1), b(0)}, 2, 1);
  lose(a(0));
  ask(a(1));
  ask(b(0));
  EXPECT_THAT(ask(a(0, 1)), IsEmpty()) << "it could not join";
  lose(b(0));
  EXPECT_EQ(reason(ask(a(1))), "the job was reset 1 times, which is the limit (--reset-limit)");
}

TEST_F(ElasticTest, MembersOnRemovedSlotsLeaveWithTheNextGeneration) {
  Settings with = settings(1, 3);
  with.discovers = true;
  start(with, {a(0), a(1), b(0)}, 2, 1);
  EXPECT_THAT(on(HostsFound{{{0, "a", 1}, {1, "b", 1}}}), ElementsAre(Tell{.removed = true}));
  ask(a(0));
  ask(b(0));
  const auto actions = ask(a(1));
  EXPECT_THAT(actions,
              ElementsAre(Dismiss{a(1), "its host or slot was removed from the job", false},
                          VariantWith<Begin>(::testing::_)));
  EXPECT_THAT(ranks(), ElementsAre(a(0), b(0)));
  EXPECT_THAT(lose(a(1)), IsEmpty()) << "its exit status does not count";
}

TEST_F(ElasticTest, NewcomersOnARemovedHostLeaveAtOnce) {
  Settings with = settings(1, 3);
  with.discovers = true;
  start(with, {a(0)}, 1, 2);
  tick();
  ask(b(0));
  EXPECT_THAT(on(HostsFound{{{0, "a", 1}}}),
              ElementsAre(Dismiss{b(0), "its host or slot was removed from the job", false},
                          Dismiss{b(1), "its host or slot was removed from the job", true}));
  EXPECT_THAT(on(HostsFound{{{0, "a", 1}, {1, "b", 2}}}), IsEmpty()) << "its slots are taken";
  EXPECT_THAT(lose(b(1)), ElementsAre(StartWorker{b(1, 1)}));
  EXPECT_THAT(lose(b(0)), ElementsAre(StartWorker{b(0, 1)})) << "and this was no failure of b";
}

TEST_F(ElasticTest, AHostThatComesBackKeepsItsCountOfFailures) {
  Settings with = settings(1, 2);
  with.discovers = true;
  start(with, {a(0), b(0)}, 1, 1);
  lose(b(0));
  lose(b(0, 1));
  ask(a(0));
  on(HostsFound{{{0, "a", 1}}});
  EXPECT_THAT(on(HostsFound{{{0, "a", 1}, {1, "b", 1}}}), IsEmpty());
}

constexpr const char* kDone =
    "rank 0 in slot 0 of a has ended with exit code 0, which means that the job is done";

TEST_F(ElasticTest, WhenAWorkerEndsWellNoOtherGenerationBegins) {
  start(settings(1, 3), {a(0), a(1)}, 3);
  tick();
  EXPECT_THAT(on(WorkerEnded{a(0), true}), ElementsAre(Dismiss{a(2), kDone, true}, Close{kDone}));
  EXPECT_THAT(lose(a(1)), IsEmpty());
}

TEST_F(ElasticTest, ANewcomerThatIsReadyWhenTheJobIsDoneGetsNoError) {
  start(settings(1, 2), {a(0)}, 2);
  tick();
  ask(a(1));
  EXPECT_THAT(on(WorkerEnded{a(0), true}), ElementsAre(Dismiss{a(1), kDone, true}, Close{kDone}));
}

/// The first worker that is started, if any.
std::optional<WorkerId> started_by(const std::vector<Action>& actions) {
  for (const Action& action : actions)
    if (const auto* start = std::get_if<StartWorker>(&action)) return start->worker;
  return std::nullopt;
}

TEST_F(ElasticTest, WithACooldownAHostIsDroppedAtOnceAndReturns) {
  Settings with = settings(1, 3);
  with.cooldown = Cooldown{10s, 60s};
  start(with, {a(0), a(1), a(2)}, 3);
  EXPECT_EQ(started_by(lose(a(1))), std::nullopt);
  ask(a(0));
  ask(a(2));
  EXPECT_EQ(started_by(wait()), a(1, 1));
  EXPECT_GE(now, TimePoint{} + 10s);
  EXPECT_LE(now, TimePoint{} + 20s);
  EXPECT_THAT(explanation, Contains("a may be used again"));
}

TEST_F(ElasticTest, ACooldownDoublesUpToItsLimit) {
  Settings with = settings(1, 2);
  with.cooldown = Cooldown{10s, 60s};
  start(with, {a(0), b(0)}, 1, 1);
  std::vector<Duration> pauses;
  for (int failure = 0; failure < 5; ++failure) {
    const TimePoint failed = now;
    lose(b(0, failure));
    wait();
    pauses.push_back(now - failed);
  }
  const auto between = [](Duration low, Duration high) {
    return ::testing::AllOf(::testing::Ge(low), ::testing::Le(high));
  };
  EXPECT_THAT(pauses, ElementsAre(between(10s, 20s), between(20s, 30s), between(40s, 50s),
                                  Duration(60s), Duration(60s)));
}

TEST_F(ElasticTest, AJobWaitsForTheEndOfACooldown) {
  Settings with = settings(2, 2);
  with.cooldown = Cooldown{10s, 60s};
  start(with, {a(0), a(1)}, 2);
  EXPECT_THAT(reason(lose(a(1))), IsEmpty());
  ask(a(0));
  EXPECT_EQ(started_by(wait()), a(1, 1));
}

TEST_F(ElasticTest, AfterItsCooldownALostHostIsConnectedToAgain) {
  Settings with = settings(1, 2);
  with.cooldown = Cooldown{10s, 60s};
  start(with, {a(0), b(0)}, 1, 1);
  on(HostGone{1});
  ask(a(0));
  EXPECT_THAT(wait(), ElementsAre(Reconnect{1}));
  EXPECT_THAT(on(HostsFound{{{0, "a", 1}, {1, "b", 1}}}), ElementsAre(StartWorker{b(0, 1)}));
}

/// The ranks that --chaos kills in a job whose workers are replaced.
std::vector<WorkerId> chosen_with(uint64_t seed) {
  Settings with{.min = 1, .target = 4, .kill_every = 30s, .seed = seed};
  State state = elastic::begin(with, {{0, "a", 4}}, assign_ranks({a(0), a(1), a(2), a(3)}, 0));
  std::vector<WorkerId> chosen;
  TimePoint now{};
  const auto on = [&](const Event& event) {
    Decision decision = decide(now, std::move(state), event);
    state = std::move(decision.state);
    for (const Action& action : decision.actions)
      if (const auto* kill = std::get_if<Kill>(&action)) chosen.push_back(kill->worker);
  };
  on(TimePassed{});
  while (chosen.size() < 6) {
    now = deadline(state).value();
    const size_t before = chosen.size();
    on(TimePassed{});
    EXPECT_EQ(chosen.size(), before + 1);
    on(WorkerEnded{chosen.back(), false});
    for (const Standing asks : {Standing::starting, Standing::running}) {
      const auto workers = state.workers;
      for (const auto& [worker, standing] : workers)
        if (standing == asks) on(WorkerAsks{worker});
    }
    EXPECT_THAT(state.assignment.workers(), SizeIs(4)) << "its host is not dropped";
  }
  EXPECT_EQ(now, TimePoint{} + 6 * 30s);
  return chosen;
}

TEST_F(ElasticTest, ChaosKillsARandomRankAgainAndAgain) {
  EXPECT_EQ(chosen_with(1), chosen_with(1));
  EXPECT_NE(chosen_with(1), chosen_with(2));
  const auto chosen = chosen_with(1);
  EXPECT_GT(std::set<WorkerId>(chosen.begin(), chosen.end()).size(), 2u);
}

TEST_F(ElasticTest, ChaosTellsWhomItKillsAndSparesTheLastRank) {
  Settings with = settings(1, 2);
  with.kill_every = 30s;
  with.seed = 7;
  start(with, {a(0), a(1)}, 2);
  tick();
  const auto actions = wait();
  ASSERT_THAT(actions, SizeIs(2));
  EXPECT_THAT(
      std::get<Say>(actions[0]).line,
      ::testing::MatchesRegex("--chaos kills rank [01] in slot [01] of a .kill 1, seed 7."));
  on(WorkerEnded{std::get<Kill>(actions[1]).worker, false});
  EXPECT_THAT(wait(), IsEmpty());
}

/// Whatever happens: rank 0 has been in the generation before, survivors keep their order, and the
/// job has at least the minimum and at most the target, until it ends.
TEST_F(ElasticTest, RandomSequencesKeepThePromises) {
  for (unsigned seed = 0; seed < 2000; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](int limit) {
      return std::uniform_int_distribution<int>(0, limit - 1)(random);
    };
    Settings with = settings(1 + below(3), 4);
    with.discovers = true;
    if (seed % 2 == 1) with.cooldown = Cooldown{3s, 20s};
    now = {};
    start(with, {a(0), a(1), b(0)}, 2, 2);
    tick();
    for (int step = 0; step < 60 && !state.over; ++step) {
      const Assignment before = state.assignment;
      std::vector<WorkerId> alive(state.leaving.begin(), state.leaving.end());
      for (const auto& [worker, standing] : state.workers) alive.push_back(worker);
      const WorkerId worker = alive[static_cast<size_t>(below(static_cast<int>(alive.size())))];
      now += 1s;
      std::vector<Action> actions;
      switch (below(9)) {
        case 0:
          actions = lose(worker);
          break;
        case 8:
          actions = on(WorkerLeaves{worker});
          break;
        case 1:
          actions = on(HostsFound{{{0, "a", below(3)}, {1, "b", below(3)}, {2, "c", below(3)}}});
          break;
        default:
          actions = ask(worker);
      }
      for (const Action& action : actions) {
        if (!std::holds_alternative<Begin>(action)) continue;
        EXPECT_GE(state.assignment.size(), with.min) << seed;
        EXPECT_LE(state.assignment.size(), with.target) << seed;
        EXPECT_TRUE(before.rank_of(state.assignment.worker(0))) << seed;
        int last = -1;
        for (const AssignedWorker& one : state.assignment.workers()) {
          const auto rank = before.rank_of(one.id);
          if (!rank) continue;
          EXPECT_GT(*rank, last) << seed;
          last = *rank;
        }
      }
      EXPECT_GT(deadline(state).value_or(now + 1s), now) << seed;
    }
  }
}

}  // namespace
}  // namespace hvd::launcher::elastic
