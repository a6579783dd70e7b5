// Members that are given up, and members that leave: the others go on without them.
#include "launcher/elastic/elastic_testing.h"

namespace hvd::launcher::elastic {
namespace {

using namespace std::chrono_literals;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::VariantWith;

TEST_F(ElasticTest, AMemberThatDoesNotAskIsGivenUp) {
  Settings with = settings(1, 3);
  with.survivor = 7s;
  start(with, {a(0), a(1), b(0)}, 2, 2);
  lose(a(1));
  now += 3s;
  EXPECT_THAT(ask(a(0)), IsEmpty());
  EXPECT_THAT(wait(), ElementsAre(ExplainWait{}));
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

TEST_F(ElasticTest, TheOtherMembersOfASilentHostAreGivenUpIfNothingComesFromIt) {
  start(settings(1, 4), {a(0), a(1), b(0), b(1)}, 2, 2);
  on(WorkerSilent{a(0), b(0), "it has sent nothing for 5 s"});
  ask(a(0));
  ask(a(1));
  EXPECT_THAT(wait(), Contains(VariantWith<Begin>(::testing::_)));
  EXPECT_EQ(now, TimePoint{} + kNoNews);
  EXPECT_THAT(ranks(), ElementsAre(a(0), a(1)));
  EXPECT_THAT(ask(b(1)), IsEmpty()) << "it is too late";
}

TEST_F(ElasticTest, AHostFromWhichSomethingComesIsNotSilent) {
  start(settings(1, 4), {a(0), a(1), b(0), b(1)}, 2, 2);
  on(WorkerSilent{a(0), b(0), "it has sent nothing for 5 s"});
  lose(b(0));
  ask(a(0));
  ask(a(1));
  now += kNoNews;
  EXPECT_THAT(tick(), IsEmpty()) << "the other member there makes a long step";
  EXPECT_THAT(ask(b(1)), ElementsAre(VariantWith<Begin>(::testing::_)));
  EXPECT_THAT(ranks(), ElementsAre(a(0), a(1), b(1)));
}

TEST_F(ElasticTest, AMemberThatLeavesDoesNotHoldUpTheOthers) {
  start(settings(1, 3), {a(0), a(1), b(0)}, 2, 1);
  ask(a(1));
  const std::string why = "rank 0 in slot 0 of a leaves at a commit";
  EXPECT_THAT(on(WorkerLeaves{a(0)}), ElementsAre(Say{why + "; the job goes on without it"},
                                                  Dismiss{a(0), why, false}, abandon(0, why)));
  EXPECT_THAT(ask(b(0)), ElementsAre(VariantWith<Begin>(::testing::_)));
  EXPECT_THAT(ranks(), ElementsAre(a(1), b(0)));
  EXPECT_THAT(on(WorkerLeaves{a(0)}), IsEmpty()) << "it has said so";
  EXPECT_THAT(lose(a(0)), ElementsAre(StartWorker{a(0, 1)})) << "its slot is free now";
}

TEST_F(ElasticTest, AMemberMayLeaveWhenTheOthersHaveAsked) {
  start(settings(1, 2), {a(0), a(1)}, 2);
  ask(a(0));
  EXPECT_THAT(on(WorkerLeaves{a(1)}), Contains(VariantWith<Begin>(::testing::_)));
  EXPECT_THAT(ranks(), ElementsAre(a(0)));
}

TEST_F(ElasticTest, AMemberMayLeaveWhenItHasAsked) {
  start(settings(1, 2), {a(0), a(1)}, 2);
  ask(a(0));
  on(WorkerLeaves{a(0)});
  EXPECT_THAT(ask(a(1)), ElementsAre(VariantWith<Begin>(::testing::_)));
  EXPECT_THAT(ranks(), ElementsAre(a(1)));
}

TEST_F(ElasticTest, AJobWhoseMembersAllLeaveEndsWhenTheyHaveEnded) {
  start(settings(1, 2), {a(0), b(0)}, 1, 1);
  on(WorkerLeaves{a(0)});
  EXPECT_THAT(reason(on(WorkerLeaves{b(0)})), IsEmpty());
  EXPECT_THAT(reason(lose(b(0))), IsEmpty());
  EXPECT_EQ(reason(on(HostGone{0})), "all workers have left the job after SIGTERM");
}

TEST_F(ElasticTest, AJobWhoseMembersAllLeaveNamesItsStateFolder) {
  Settings with = settings(1, 2);
  with.state_folder = "run";
  start(with, {a(0), a(1)}, 2);
  on(WorkerLeaves{a(0)});
  on(WorkerLeaves{a(1)});
  lose(a(0));
  EXPECT_EQ(reason(lose(a(1))),
            "all workers have left the job after SIGTERM; a new start continues from the state "
            "folder run");
}

TEST_F(ElasticTest, AJobWhoseLastMemberIsLostNamesNoFolder) {
  Settings with = settings(1, 2);
  with.state_folder = "run";
  start(with, {a(0), a(1)}, 2);
  on(WorkerLeaves{a(0)});
  lose(a(0));
  EXPECT_EQ(reason(lose(a(1))), "no worker is left that has the state of the job");
}

TEST_F(ElasticTest, TwoThatLeaveCountAsFailuresOfTheirHost) {
  start(settings(1, 3), {a(0), a(1), b(0)}, 2, 1);
  on(WorkerLeaves{a(0)});
  on(WorkerLeaves{a(1)});
  EXPECT_THAT(lose(a(0)), IsEmpty());
  EXPECT_THAT(lose(a(1)), IsEmpty());
  EXPECT_THAT(ask(b(0)), ElementsAre(VariantWith<Begin>(::testing::_)));
}

TEST_F(ElasticTest, ARunningJobGivesUpNobody) {
  start(settings(1, 2), {a(0), a(1)}, 2);
  tick();
  now += 3600s;
  EXPECT_THAT(tick(), IsEmpty());
  ask(a(0));
  now += 29s;
  EXPECT_THAT(tick(), ElementsAre(ExplainWait{}));
  EXPECT_THAT(ask(a(1)), ElementsAre(VariantWith<Begin>(::testing::_)));
  EXPECT_EQ(deadline(state), std::nullopt);
}

TEST_F(ElasticTest, TheSlotOfAMemberThatWasGivenUpIsUsedWhenItHasEnded) {
  start(settings(2, 2), {a(0), a(1)}, 2);
  ask(a(0));
  wait();
  EXPECT_THAT(reason(wait()), IsEmpty()) << "its slot may become free";
  EXPECT_THAT(lose(a(1)), ElementsAre(StartWorker{a(1, 1)}));
  EXPECT_THAT(ask(a(1, 1)), ElementsAre(VariantWith<Begin>(::testing::_)));
}

}  // namespace
}  // namespace hvd::launcher::elastic
