#include "launcher/elastic/elastic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace hvd::launcher::elastic {
namespace {

using namespace std::chrono_literals;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::VariantWith;

constexpr WorkerId a(int slot, int incarnation = 0) { return {0, slot, incarnation}; }
constexpr WorkerId b(int slot, int incarnation = 0) { return {1, slot, incarnation}; }

/// A job on the hosts a and b under a clock of the test.
class ElasticTest : public ::testing::Test {
 protected:
  void start(const Settings& settings, const std::vector<WorkerId>& workers, int slots_a,
             int slots_b = 0) {
    hosts = {{0, "a", slots_a}};
    if (slots_b > 0) hosts.push_back({1, "b", slots_b});
    state = elastic::begin(settings, hosts, assign_ranks(workers, 0));
  }
  std::vector<Action> on(const Event& event) {
    Decision decision = decide(now, std::move(state), event);
    state = std::move(decision.state);
    explanation = std::move(decision.explanation);
    return std::move(decision.actions);
  }
  std::vector<Action> tick() { return on(TimePassed{}); }
  std::vector<Action> lose(const WorkerId& worker) { return on(WorkerEnded{worker, false}); }
  std::vector<Action> ask(const WorkerId& worker) { return on(WorkerAsks{worker}); }
  /// Advances the time to the next deadline.
  std::vector<Action> wait() {
    const auto next = deadline(state);
    EXPECT_TRUE(next);
    now = next.value_or(now);
    return tick();
  }
  Action abandon(uint32_t generation, const std::string& why) { return Abandon{generation, why}; }
  std::vector<WorkerId> ranks() const {
    std::vector<WorkerId> ids;
    for (const AssignedWorker& worker : state.assignment.workers()) ids.push_back(worker.id);
    return ids;
  }
  static std::string reason(const std::vector<Action>& actions) {
    for (const Action& action : actions)
      if (const auto* end = std::get_if<End>(&action)) return end->why;
    return "";
  }

  static Settings settings(int min, int target) {
    return {.min = min, .target = target, .patience = 600s};
  }
  std::vector<HostSlots> hosts;
  State state;
  TimePoint now{};
  std::vector<std::string> explanation;
};

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
  EXPECT_THAT(lose(a(1)), ElementsAre(abandon(0, "rank 1 in slot 1 of a was lost")));
  EXPECT_THAT(explanation, Contains(HasSubstr("no more workers are started on a")));
  ask(a(2));
  ask(b(0));
  EXPECT_THAT(ranks(), ElementsAre(a(2), b(0)));
}

TEST_F(ElasticTest, AReplacementThatFailsCountsAsAFailureOfItsHost) {
  start(settings(1, 2), {a(0), a(1)}, 2);
  lose(a(0));
  EXPECT_THAT(lose(a(0, 1)), IsEmpty()) << "not started again";
  EXPECT_THAT(ask(a(1)), Contains(VariantWith<Begin>(::testing::_)));
}

TEST_F(ElasticTest, ALostHostTakesItsWorkersAndIsNotUsedAgain) {
  start(settings(1, 4), {a(0), a(1), b(0), b(1)}, 2, 2);
  EXPECT_THAT(on(HostGone{1}), ElementsAre(abandon(0, "host b was lost")));
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

TEST_F(ElasticTest, WhenAWorkerEndsWellNoOtherGenerationBegins) {
  start(settings(1, 3), {a(0), a(1)}, 3);
  tick();
  EXPECT_THAT(on(WorkerEnded{a(0), true}),
              ElementsAre(Dismiss{a(2), "rank 0 in slot 0 of a has ended with exit code 0", true},
                          Close{"rank 0 in slot 0 of a has ended with exit code 0"}));
  EXPECT_THAT(lose(a(1)), IsEmpty());
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

TEST_F(ElasticTest, AMemberThatDoesNotAskIsGivenUp) {
  Settings with = settings(1, 3);
  with.survivor = 7s;
  start(with, {a(0), a(1), b(0)}, 2, 2);
  lose(a(1));
  now += 3s;
  EXPECT_THAT(ask(a(0)), IsEmpty());
  const auto actions = wait();
  EXPECT_EQ(now, TimePoint{} + 10s);
  const std::string why =
      "rank 2 in slot 0 of b was given up: it did not ask for its next place within 7 s after "
      "another rank (HOROVOD_SURVIVOR_TIMEOUT)";
  EXPECT_THAT(actions,
              ElementsAre(Say{why + "; the job goes on without it"}, Dismiss{b(0), why, false},
                          abandon(0, why), StartWorker{b(1)}, VariantWith<Begin>(::testing::_)));
  EXPECT_THAT(ranks(), ElementsAre(a(0)));
  EXPECT_THAT(ask(b(0)), IsEmpty()) << "it is too late";
  EXPECT_THAT(lose(b(0)), IsEmpty()) << "its exit status does not count";
}

TEST_F(ElasticTest, ASilentMemberIsGivenUpAtOnceAndKilled) {
  start(settings(1, 3), {a(0), a(1), b(0)}, 2, 2);
  const std::string why = "rank 2 in slot 0 of b was given up: it has sent nothing for 5 s";
  EXPECT_THAT(on(WorkerSilent{a(0), b(0), "it has sent nothing for 5 s"}),
              ElementsAre(Say{why + "; the job goes on without it"}, Dismiss{b(0), why, false},
                          abandon(0, why), Kill{b(0)}, StartWorker{b(1)}));
  EXPECT_THAT(on(WorkerSilent{a(1), b(0), "it has sent nothing for 5 s"}), IsEmpty());
  EXPECT_THAT(on(WorkerSilent{b(0), a(0), "it has sent nothing for 5 s"}), IsEmpty())
      << "it is cut off itself";
  ask(a(0));
  EXPECT_THAT(on(WorkerSilent{a(1), a(0), "late"}), IsEmpty()) << "it has asked";
  EXPECT_THAT(ask(a(1)), ElementsAre(VariantWith<Begin>(::testing::_)));
}

TEST_F(ElasticTest, ARunningJobGivesUpNobody) {
  start(settings(1, 2), {a(0), a(1)}, 2);
  tick();
  now += 3600s;
  EXPECT_THAT(tick(), IsEmpty());
  ask(a(0));
  now += 29s;
  EXPECT_THAT(tick(), IsEmpty());
  EXPECT_THAT(ask(a(1)), ElementsAre(VariantWith<Begin>(::testing::_)));
  EXPECT_EQ(deadline(state), std::nullopt);
}

TEST_F(ElasticTest, TheSlotOfAMemberThatWasGivenUpIsUsedWhenItHasEnded) {
  start(settings(2, 2), {a(0), a(1)}, 2);
  ask(a(0));
  EXPECT_THAT(reason(wait()), IsEmpty()) << "its slot may become free";
  EXPECT_THAT(lose(a(1)), ElementsAre(StartWorker{a(1, 1)}));
  EXPECT_THAT(ask(a(1, 1)), ElementsAre(VariantWith<Begin>(::testing::_)));
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
      std::vector<WorkerId> alive;
      for (const auto& [worker, standing] : state.workers) alive.push_back(worker);
      const WorkerId worker = alive[static_cast<size_t>(below(static_cast<int>(alive.size())))];
      now += 1s;
      std::vector<Action> actions;
      switch (below(8)) {
        case 0:
          actions = lose(worker);
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
