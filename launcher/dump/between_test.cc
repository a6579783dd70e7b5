#include "launcher/dump/between.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "launcher/dump/render.h"

namespace hvd::launcher {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

RankReport in_stage(int rank, RankStage stage, std::chrono::milliseconds age = 12s) {
  return {.rank = rank,
          .host = "a",
          .process = 100 + rank,
          .run_state = 'S',
          .has_board = true,
          .stage = stage,
          .stage_age = age,
          .answers = true,
          .stack = {{"/job/train.py", 30, "step", "time.sleep(9)"}}};
}

/// Ranks 0 and 1 wait in `stage`; rank 2 does something else.
std::vector<RankReport> awaited_in(RankStage stage, RankReport other) {
  return {in_stage(0, stage), in_stage(1, stage, 10s), std::move(other)};
}

const std::string kAt = "; its main thread is at train.py:30 in step";

TEST(BetweenOperations, ARankHasNotCalledInit) {
  auto reports = awaited_in(RankStage::in_init, in_stage(2, RankStage::before_init));
  const std::string text =
      "rank 2 has not called hvd.init(), in which ranks 0, 1 have waited for 12 s";
  const Cause cause = explain(reports);
  EXPECT_EQ(cause.text, text + kAt);
  EXPECT_EQ(cause.kind, HangClass::start);
  EXPECT_EQ(cause.operation, "hvd.init()");
  EXPECT_THAT(cause.ranks, ElementsAre(2));
  reports[2].stack = {{"/job/train.py", 5, "download", "lock.acquire()"}};
  EXPECT_EQ(explain(reports).kind, HangClass::lock);
}

TEST(BetweenOperations, AProcessHasNotImportedHorovod) {
  auto reports = awaited_in(RankStage::in_init, in_stage(2, RankStage::before_init));
  reports[2].has_board = reports[2].answers = false;
  reports[2].stack.clear();
  EXPECT_EQ(explain(reports).kind, HangClass::start);
  EXPECT_THAT(explain(reports).text,
              HasSubstr("12 s; its process 102 has not imported horovod; the stack of its main "
                        "thread is not known"));
  reports[2].stack = {{"/job/train.py", 5, "load", ""}};  // from py-spy
  EXPECT_THAT(explain(reports).text,
              HasSubstr("horovod; its main thread is at train.py:5 in load"));
}

TEST(BetweenOperations, ASurvivorRunsOnAfterALoss) {
  const auto reports = awaited_in(RankStage::next_generation, in_stage(2, RankStage::failed, 13s));
  const Cause cause = explain(reports);
  EXPECT_EQ(cause.text,
            "rank 2 has not asked for its place in the next generation, which ranks 0, 1 have "
            "awaited for 12 s; an error ended its generation 13 s ago, and it runs on" +
                kAt);
  EXPECT_EQ(cause.kind, HangClass::failed);
  EXPECT_EQ(cause.operation, "the next generation");
}

TEST(BetweenOperations, TheLostRankIsNotAwaited) {
  auto reports = awaited_in(RankStage::next_generation, in_stage(2, RankStage::failed));
  reports.push_back({.rank = 3, .host = "a"});
  EXPECT_THAT(explain(reports).ranks, ElementsAre(2));
}

TEST(BetweenOperations, SeveralAreNamedAndTheClearestIsExplained) {
  auto reports = awaited_in(RankStage::next_generation, in_stage(2, RankStage::failed));
  RankReport stopped = in_stage(3, RankStage::failed);
  stopped.run_state = 'T';
  stopped.answers = false;
  stopped.stack.clear();
  reports.push_back(std::move(stopped));
  const Cause cause = explain(reports);
  EXPECT_EQ(cause.text,
            "ranks 2, 3 have not asked for their places in the next generation, which ranks 0, 1 "
            "have awaited for 12 s; rank 3: its process 103 is stopped, by SIGSTOP or a debugger");
  EXPECT_EQ(cause.kind, HangClass::stopped);
}

TEST(BetweenOperations, AStoppedRankIsNamedAtOnce) {
  auto reports = awaited_in(RankStage::next_generation, in_stage(2, RankStage::failed));
  reports[0].stage_age = reports[1].stage_age = 20ms;
  EXPECT_FALSE(between_operations(reports));
  reports[2].run_state = 'T';
  EXPECT_EQ(between_operations(reports)->kind, HangClass::stopped);
}

TEST(BetweenOperations, ARankThatIsStoppedInInitHoldsUpTheOthers) {
  auto reports = awaited_in(RankStage::in_init, in_stage(2, RankStage::in_init));
  reports[2].run_state = 'T';
  EXPECT_THAT(explain(reports).text,
              StartsWith("rank 2 does not go on in hvd.init(), in which ranks 0, 1 have waited for "
                         "12 s; its process 102 is stopped"));
}

TEST(BetweenOperations, WhatIsSaidHoldsForAllThatAreNamed) {
  auto reports = awaited_in(RankStage::in_init, in_stage(2, RankStage::in_init));
  reports[2].run_state = 'T';
  reports.push_back(in_stage(3, RankStage::before_init));
  EXPECT_THAT(explain(reports).text, StartsWith("rank 2 does not go on in hvd.init(), in which"));
  EXPECT_THAT(explain(reports).ranks, ElementsAre(2));
}

TEST(BetweenOperations, ARankWhoseInitHasFailed) {
  const auto reports = awaited_in(RankStage::in_init, in_stage(2, RankStage::init_failed, 6s));
  EXPECT_EQ(explain(reports).text,
            "rank 2 has not called hvd.init() again, in which ranks 0, 1 have waited for 12 s; "
            "hvd.init() failed there 6.0 s ago, and it runs on" +
                kAt);
  EXPECT_EQ(explain(reports).kind, HangClass::failed);
}

TEST(BetweenOperations, AHostThatDoesNotAnswer) {
  const RankReport unreached{.rank = 2, .host = "b", .is_reached = false};
  EXPECT_EQ(explain(awaited_in(RankStage::next_generation, unreached)).text,
            "rank 2 cannot be reached, and ranks 0, 1 have waited for the next generation for 12 "
            "s; host b does not answer: it or the network to it is down");
  EXPECT_EQ(explain(awaited_in(RankStage::in_shutdown, unreached)).kind, HangClass::unreachable);
}

TEST(BetweenOperations, ARankHasNotCalledShutdown) {
  auto reports = awaited_in(RankStage::in_shutdown, in_stage(2, RankStage::running));
  EXPECT_EQ(explain(reports).text,
            "rank 2 has not called hvd.shutdown(), in which ranks 0, 1 have waited for 12 s" + kAt);
  reports.push_back({.rank = 3});
  EXPECT_THAT(explain(reports).ranks, ElementsAre(2)) << "the process of rank 3 has ended";
  reports[2].state = BoardState{.rank = 2, .size = 3, .pending = {{.name = "loss", .age = 10ms}}};
  EXPECT_EQ(explain(reports).kind, HangClass::order);
  EXPECT_THAT(explain(reports).text, HasSubstr("; it waits for loss instead; "));
}

TEST(BetweenOperations, ARankWaitsAtAnotherPlaceThanTheOthers) {
  RankReport other = in_stage(2, RankStage::in_shutdown, 3s);
  std::vector<RankReport> reports{in_stage(0, RankStage::running), in_stage(1, RankStage::running)};
  for (RankReport& report : reports)
    report.state =
        BoardState{.rank = report.rank, .size = 3, .pending = {{.name = "loss", .age = 12s}}};
  reports.push_back(std::move(other));
  EXPECT_EQ(explain(reports).kind, HangClass::order);
  EXPECT_THAT(explain(reports).text, HasSubstr("; it waits for hvd.shutdown() instead; "));
}

TEST(BetweenOperations, ThoseThatGoOnAlreadyAreNotMissing) {
  const Cause cause = explain(awaited_in(RankStage::in_init, in_stage(2, RankStage::running)));
  EXPECT_EQ(cause.kind, HangClass::transfer);
  EXPECT_EQ(cause.text, "all ranks are in hvd.init(), in which ranks 0, 1 have waited for 12 s");
  EXPECT_THAT(cause.ranks, IsEmpty());
}

TEST(BetweenOperations, AJobWaitsForWorkers) {
  std::vector<RankReport> reports{in_stage(0, RankStage::next_generation)};
  const std::string text =
      "rank 0 has waited for the next generation for 12 s: the job waits for more workers "
      "(--min-np)";
  EXPECT_EQ(explain(reports).text, text);
  EXPECT_EQ(explain(reports).kind, HangClass::slots);
  RankReport newcomer = in_stage(-1, RankStage::before_init);
  newcomer.worker = "0/2/1";
  reports.push_back(newcomer);
  EXPECT_EQ(explain(reports).text,
            text + "; the worker without a rank in slot 2 of a has not called hvd.init()" + kAt);
  EXPECT_EQ(explain(reports).kind, HangClass::start);
  EXPECT_THAT(explain(reports).workers, ElementsAre("0/2/1"));
  EXPECT_THAT(cause_text(reports),
              HasSubstr("\nThe worker without a rank in slot 2 of a, process 99\n"));
}

TEST(BetweenOperations, AWorkerWithoutARankIsNotAwaitedByRanks) {
  auto reports = awaited_in(RankStage::in_init, in_stage(2, RankStage::in_init));
  RankReport newcomer = in_stage(-1, RankStage::before_init);
  newcomer.worker = "0/3/1";
  reports.push_back(std::move(newcomer));
  EXPECT_EQ(explain(reports).kind, HangClass::transfer);
}

TEST(BetweenOperations, ARankRunsOnAfterTheOthersHaveEnded) {
  std::vector<RankReport> reports{{.rank = 0}, in_stage(1, RankStage::after_shutdown)};
  const Cause cause = explain(reports);
  EXPECT_EQ(cause.text, "rank 1 has not ended, as rank 0 has, 12 s after hvd.shutdown()" + kAt);
  EXPECT_EQ(cause.operation, "the end");
  EXPECT_THAT(cause.ranks, ElementsAre(1));
  reports.push_back(in_stage(2, RankStage::over, 13s));
  EXPECT_THAT(explain(reports).text,
              StartsWith("ranks 1, 2 have not ended, as rank 0 has, 12 s after hvd.shutdown(); "
                         "rank 1: its main thread"));
  reports.pop_back();
  reports[1].stage_age = 10ms;
  EXPECT_EQ(explain(reports).kind, HangClass::none);
  reports[1].has_board = reports[1].answers = false;
  EXPECT_EQ(explain(reports).text,
            "rank 1 has not ended, as rank 0 has; its process 101 does not run horovod any more");
  reports[1] = in_stage(1, RankStage::running);
  EXPECT_EQ(explain(reports).kind, HangClass::none);
}

TEST(BetweenOperations, TheStageIsPartOfTheDump) {
  const auto reports = awaited_in(RankStage::next_generation, in_stage(2, RankStage::failed, 13s));
  const std::string text = dump_text(reports, {});
  EXPECT_THAT(text, HasSubstr("\n  has asked for its place in the next generation 10 s ago\n"));
  EXPECT_THAT(text, HasSubstr("\n  an error ended its generation 13 s ago\n"));
  EXPECT_THAT(text, Not(HasSubstr("hvd.shutdown()")));
  const auto json = nlohmann::json::parse(dump_json(reports, {}));
  EXPECT_EQ(json["ranks"][2]["stage"], "failed");
  EXPECT_EQ(json["ranks"][2]["stage_seconds"], 13.0);
  EXPECT_TRUE(json["cause"]["workers"].empty());
}

}  // namespace
}  // namespace hvd::launcher
