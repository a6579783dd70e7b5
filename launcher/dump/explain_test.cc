#include "launcher/dump/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "launcher/dump/render.h"

namespace hvd::launcher {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

PendingOperation waiting(const std::string& name, std::chrono::milliseconds age = 12s) {
  return {.name = name, .what = "allreduce float32 [4]", .age = age};
}

RankReport rank(int number, std::vector<PendingOperation> pending = {}) {
  return {.rank = number,
          .process = 100 + number,
          .run_state = 'S',
          .has_board = true,
          .stage = RankStage::running,
          .answers = true,
          .state = BoardState{.rank = number, .size = 4, .pending = std::move(pending)}};
}

/// Ranks 0 to 2 wait for an operation that rank 3 has not submitted.
std::vector<RankReport> awaited(RankReport missing) {
  std::vector<RankReport> reports;
  for (int number = 0; number < 3; ++number)
    reports.push_back(rank(number, {waiting("grad.fc.weight")}));
  missing.rank = 3;
  reports.push_back(std::move(missing));
  return reports;
}

RankReport at(std::vector<Frame> stack) {
  RankReport report = rank(3);
  report.stack = std::move(stack);
  return report;
}

constexpr const char* kAwaited =
    "rank 3 has not submitted grad.fc.weight, which ranks 0-2 have awaited for 12 s; ";

TEST(Explain, NamesRankOperationTimeAndPlace) {
  const Cause cause = explain(awaited(at({{"/job/data_loader.py", 88, "next_batch", ""}})));
  EXPECT_EQ(cause.text,
            std::string(kAwaited) + "its main thread is at data_loader.py:88 in next_batch");
  EXPECT_EQ(cause.kind, HangClass::data);
  EXPECT_EQ(cause.operation, "grad.fc.weight");
  EXPECT_THAT(cause.ranks, ElementsAre(3));
}

TEST(Explain, SaysThatAProcessIsStopped) {
  RankReport stopped = rank(3);
  stopped.run_state = 'T';
  stopped.state.reset();
  stopped.answers = false;
  const Cause cause = explain(awaited(stopped));
  EXPECT_EQ(cause.kind, HangClass::stopped);
  EXPECT_EQ(cause.text,
            std::string(kAwaited) + "its process 103 is stopped, by SIGSTOP or a debugger");
}

TEST(Explain, SaysWhatARankWaitsForInstead) {
  const Cause cause = explain(awaited(rank(3, {waiting("grad.fc.bias")})));
  EXPECT_EQ(cause.kind, HangClass::order);
  EXPECT_THAT(cause.text,
              StartsWith(std::string(kAwaited) + "it waits for grad.fc.bias instead; "));
}

TEST(Explain, SaysThatTheGilIsHeldInABlockedCall) {
  RankReport report = at({{"/job/train.py", 30, "step", "libc.sleep(60)"}});
  report.holds_gil = true;
  EXPECT_EQ(explain(awaited(report)).kind, HangClass::gil);
  EXPECT_THAT(explain(awaited(report)).text, HasSubstr("holds the GIL, at train.py:30 in step"));
  report.run_state = 'R';  // it computes
  EXPECT_EQ(explain(awaited(report)).kind, HangClass::busy);
  report.gil_holder = {{"/job/other.py", 7, "loop", ""}};
  EXPECT_THAT(explain(awaited(report)).text,
              HasSubstr("another thread is blocked in C code and holds the GIL, at other.py:7"));
}

TEST(Explain, KnowsLocksFilesAndFailures) {
  EXPECT_EQ(explain(awaited(at({{"/job/train.py", 30, "step", "with lock:"}}))).kind,
            HangClass::lock);
  RankReport reading = at({{"/job/train.py", 30, "step", "file.readline()"}});
  reading.kernel = "read of /data/fifo";
  EXPECT_EQ(explain(awaited(reading)).kind, HangClass::io);
  EXPECT_THAT(explain(awaited(reading)).text,
              HasSubstr("its main thread waits in read of /data/fifo, at train.py:30 in step"));
  RankReport failed = at({{"/job/train.py", 30, "step", "time.sleep(9)"}});
  failed.state->last_failure = "shapes differ";
  failed.state->since_failure = 15s;
  EXPECT_EQ(explain(awaited(failed)).kind, HangClass::failed);
  EXPECT_EQ(explain(awaited(at({{"/job/train.py", 30, "step", "time.sleep(9)"}}))).kind,
            HangClass::elsewhere);
}

TEST(Explain, SaysThatAMainThreadDoesNotTakeSignals) {
  RankReport report = rank(3);
  report.answers = false;
  EXPECT_EQ(explain(awaited(report)).kind, HangClass::no_answer);
  report.kernel = "rpc_wait_bit_killable";
  EXPECT_EQ(explain(awaited(report)).kind, HangClass::io);
}

TEST(Explain, SaysThatTheMainThreadHasEnded) {
  RankReport report = rank(3);
  report.answers = false;
  report.run_state = 'Z';
  report.outlives_main = true;
  const Cause cause = explain(awaited(report));
  EXPECT_EQ(cause.kind, HangClass::no_answer);
  EXPECT_EQ(cause.text,
            std::string(kAwaited) + "its main thread has ended, and its process runs on");
  EXPECT_THAT(dump_text(awaited(report), {}),
              HasSubstr("\nRank 3, process 103, its main thread has ended\n"));
}

TEST(Explain, SaysThatAFileSystemDoesNotAnswer) {
  RankReport report = at({});
  report.answers = false;
  report.run_state = 'D';
  EXPECT_EQ(explain(awaited(report)).kind, HangClass::io);
  report.kernel = "read of /data/x";
  EXPECT_EQ(explain(awaited(report)).text,
            std::string(kAwaited) +
                "its main thread waits in read of /data/x (state D), which no signal interrupts: "
                "a file system or a device does not answer");
  report.stack = {{"/job/train.py", 30, "step", ""}};  // from py-spy
  EXPECT_THAT(explain(awaited(report)).text, HasSubstr("does not answer, at train.py:30 in step"));
}

RankReport unreached(int number) { return {.rank = number, .host = "node2", .is_reached = false}; }
constexpr const char* kUnreached = "host node2 does not answer: it or the network to it is down";

TEST(Explain, NamesRanksThatCannotBeReached) {
  std::vector<RankReport> reports{rank(0, {waiting("a")}), rank(1), unreached(2), unreached(3)};
  reports[1].state->pending = {waiting("a")};
  const Cause cause = explain(reports);
  EXPECT_EQ(cause.kind, HangClass::unreachable);
  EXPECT_EQ(cause.operation, "a");
  EXPECT_THAT(cause.ranks, ElementsAre(2, 3));
  EXPECT_EQ(cause.text,
            std::string("ranks 2, 3 cannot be reached, and ranks 0, 1 have awaited a for 12 s; "
                        "rank 2: ") +
                kUnreached);
  EXPECT_THAT(dump_text(reports, {}), HasSubstr("\nRank 2 on node2, which cannot be reached\n"));
}

TEST(Explain, DoesNotSayThatARankIsOutOfReachThatIsNot) {
  std::vector<RankReport> reports{rank(0, {waiting("a")}), rank(1), unreached(2)};
  EXPECT_THAT(explain(reports).text, StartsWith("rank 2 cannot be reached, and rank 0 has "));
  EXPECT_THAT(explain(reports).ranks, ElementsAre(2));
}

TEST(Explain, PrefersRanksOfThisHostToThoseThatNobodyHasAsked) {
  std::vector<RankReport> reports{rank(0, {waiting("a")}), rank(1), unreached(2), unreached(3)};
  reports[2].host = reports[3].host = "";
  EXPECT_THAT(explain(reports).text, StartsWith("rank 1 has not submitted a, which rank 0 has "));
  EXPECT_THAT(explain(reports).ranks, ElementsAre(1));
  reports[1].state->pending = {waiting("a")};
  EXPECT_EQ(explain(reports).text,
            "ranks 2, 3 cannot be reached, and ranks 0, 1 have awaited a for 12 s; rank 2: it does "
            "not run on this host");
}

TEST(Explain, NamesAnUnreachedRankDuringATransferAndInInit) {
  std::vector<RankReport> reports{rank(0, {waiting("a")}), rank(1, {waiting("a")}), unreached(2)};
  for (size_t i : {0, 1}) reports[i].state->pending[0].is_agreed = true;
  EXPECT_EQ(explain(reports).kind, HangClass::unreachable);
  EXPECT_THAT(explain(reports).text, HasSubstr(std::string("rank 2: ") + kUnreached));
  for (size_t i : {0, 1}) reports[i].state.reset();
  EXPECT_EQ(explain(reports).kind, HangClass::unreachable);
  EXPECT_EQ(explain(reports).text, std::string("rank 2: ") + kUnreached);
}

TEST(Explain, ShowsWhereARankIsThatHasAStackFromPySpyOnly) {
  RankReport stopped = at({{"/job/train.py", 30, "step", ""}});
  stopped.run_state = 'T';
  stopped.answers = false;
  EXPECT_THAT(explain(awaited(stopped)).text, HasSubstr("a debugger, at train.py:30 in step"));
  EXPECT_THAT(dump_text(awaited(stopped), {}),
              HasSubstr("\n  main thread, as py-spy sees it (most"));
  stopped.run_state = 'S';
  EXPECT_THAT(explain(awaited(stopped)).text, HasSubstr("(state S), at train.py:30 in step"));
}

TEST(Explain, BlamesTheFewAndNotTheMany) {
  std::vector<RankReport> reports;
  for (int number = 0; number < 3; ++number) reports.push_back(rank(number, {waiting("a", 11s)}));
  reports.push_back(rank(3, {waiting("b", 12s)}));
  EXPECT_THAT(explain(reports).ranks, ElementsAre(3));
  EXPECT_EQ(explain(reports).operation, "a");
}

TEST(Explain, DoesNotBlameRanksThatTakeNoPart) {
  std::vector<RankReport> reports{rank(0), rank(1), rank(2), rank(3)};
  PendingOperation one = waiting("set");
  one.between = {1, 2};
  reports[1].state->pending = {one};
  EXPECT_THAT(explain(reports).ranks, ElementsAre(2));
  reports[1].state->pending = {waiting("all")};
  reports[0].state->has_joined = true;
  reports[3].state->has_joined = true;
  EXPECT_THAT(explain(reports).ranks, ElementsAre(2));
}

PendingOperation call(std::vector<int32_t> ranks, std::chrono::milliseconds age = 12s) {
  return {.name = "call 3 (barrier) on the group of rank " + std::to_string(ranks.front()),
          .what = "blocking",
          .between = std::move(ranks),
          .age = age,
          .is_call = true};
}

TEST(Explain, NamesRanksThatAreNotInACallOnAGroup) {
  std::vector<RankReport> reports{rank(0, {call({0, 1})}), rank(1), rank(2)};
  reports[1].stack = {{"/job/train.py", 30, "step", ""}};
  reports[1].state->has_joined = true;
  const Cause cause = explain(reports);
  EXPECT_EQ(cause.text,
            "rank 1 has not entered call 3 (barrier) on the group of rank 0, in which rank 0 has "
            "waited for 12 s; its main thread is at train.py:30 in step");
  EXPECT_EQ(cause.operation, "call 3 (barrier) on the group of rank 0");
  EXPECT_THAT(cause.ranks, ElementsAre(1));
  reports[1] = unreached(1);
  EXPECT_THAT(
      explain(reports).text,
      StartsWith("rank 1 cannot be reached, and rank 0 has waited in call 3 (barrier) on "));
  reports[1] = rank(1, {call({0, 1})});
  EXPECT_THAT(explain(reports).text, HasSubstr("which all its ranks have entered, has not ended"));
}

TEST(Explain, DoesNotBlameRanksThatOthersHoldUp) {
  std::vector<RankReport> reports{rank(0, {call({0, 1}, 15s)}), rank(1, {call({1, 2}, 14s)}),
                                  rank(2, {call({2, 3}, 13s)}), rank(3)};
  EXPECT_THAT(explain(reports).ranks, ElementsAre(3));
  reports[3] = rank(3, {call({3, 0}, 12s)});  // a ring
  EXPECT_THAT(explain(reports).ranks, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(explain(reports).kind, HangClass::order);
}

/// Ranks 0 and 2 have joined. Rank 1 has submitted its last operation so long ago.
std::vector<RankReport> joined(std::chrono::milliseconds since_last,
                               std::chrono::milliseconds wait = 14s) {
  std::vector<RankReport> reports{rank(0), rank(1), rank(2)};
  for (size_t i : {0, 2}) {
    reports[i].state->pending = {{.name = "join", .what = "join", .age = wait}};
    reports[i].state->has_joined = true;
  }
  reports[1].state->last = {{"loss", "allreduce", since_last}};
  reports[1].stack = {{"/job/train.py", 30, "step", "time.sleep(9)"}};
  return reports;
}

TEST(Explain, NamesARankThatNeitherJoinsNorTrainsOn) {
  const Cause cause = explain(joined(15s));
  EXPECT_EQ(cause.text,
            "rank 1 has not called hvd.join(), in which ranks 0, 2 have waited for 14 s; its main "
            "thread is at train.py:30 in step");
  EXPECT_EQ(cause.operation, "hvd.join()");
  EXPECT_EQ(cause.kind, HangClass::elsewhere);
  EXPECT_THAT(cause.ranks, ElementsAre(1));
  EXPECT_EQ(explain(joined(11s, 20s)).kind, HangClass::elsewhere) << "after some steps alone";
  std::vector<RankReport> reports = joined(15s);
  reports[1] = {.rank = 1, .host = "node2", .is_reached = false};
  EXPECT_THAT(
      explain(reports).text,
      StartsWith("rank 1 cannot be reached, and ranks 0, 2 have waited in hvd.join() for "));
}

TEST(Explain, DoesNotBlameARankThatTrainsAfterOthersHaveJoined) {
  EXPECT_EQ(explain(joined(9s)).kind, HangClass::none) << "a step may take long";
  EXPECT_EQ(explain(joined(11s, 30s)).kind, HangClass::none);
  std::vector<RankReport> reports = joined(15s);
  reports[1].state.reset();  // its signal is the script's own
  EXPECT_EQ(explain(reports).kind, HangClass::none);
  reports = joined(15s);
  reports[1] = {.rank = 1, .is_reached = false};  // started elsewhere by mpirun
  EXPECT_EQ(explain(reports).kind, HangClass::none);
  reports = joined(15s);
  reports[1].state->pending = {waiting("loss")};
  reports[1].state->pending.front().is_agreed = true;
  EXPECT_EQ(explain(reports).operation, "loss");
}

TEST(Explain, NamesAStoppedRankDuringATransfer) {
  std::vector<RankReport> reports = awaited(rank(3));
  for (int number = 0; number < 3; ++number)
    reports[static_cast<size_t>(number)].state->pending[0].is_agreed = true;
  reports[3].state.reset();
  reports[3].run_state = 'T';
  const Cause cause = explain(reports);
  EXPECT_EQ(cause.kind, HangClass::stopped);
  EXPECT_THAT(cause.ranks, ElementsAre(3));
  EXPECT_THAT(cause.text, HasSubstr("has not ended on ranks 0-2 for 12 s; rank 3: its process"));
}

TEST(Explain, NamesARankThatHasEndedRatherThanOneThatDoesNotTell) {
  std::vector<RankReport> reports = awaited(rank(3));
  for (size_t i : {0, 1, 2}) reports[i].state->pending[0].is_agreed = true;
  for (size_t i : {2, 3}) reports[i].state.reset();
  EXPECT_EQ(explain(reports).kind, HangClass::transfer);
  reports[3].run_state = 'Z';
  EXPECT_EQ(explain(reports).kind, HangClass::ended);
  EXPECT_THAT(explain(reports).ranks, ElementsAre(2, 3));
  EXPECT_THAT(explain(reports).text, HasSubstr("12 s; rank 3: its process has ended"));
}

/// Rank 1 is on host b, rank 2 on host c. Both run an operation for which rank 0 no longer waits.
std::vector<RankReport> parted() {
  std::vector<RankReport> reports{rank(0, {waiting("next", 11s)}), rank(1, {waiting("a")}),
                                  rank(2, {waiting("a")})};
  for (size_t i : {0, 1, 2}) reports[i].host = std::string(1, "abc"[i]);
  for (size_t i : {1, 2}) reports[i].state->pending[0].is_agreed = true;
  reports[1].state->silent = {{2, 9s}};
  return reports;
}

TEST(Explain, NamesHostsThatDoNotReachEachOther) {
  std::vector<RankReport> reports = parted();
  const Cause cause = explain(reports);
  EXPECT_EQ(cause.kind, HangClass::partition);
  EXPECT_EQ(cause.operation, "a");
  EXPECT_THAT(cause.ranks, ElementsAre(1, 2));
  EXPECT_EQ(cause.text,
            "host c cannot be reached from host b: rank 1 there has heard nothing from rank 2 for "
            "9.0 s, and a has not ended for 12 s; both hosts answer horovodrun, so the network "
            "between them is down");
  EXPECT_THAT(dump_text(reports, {}), HasSubstr("\n  has heard nothing from rank 2 for 9.0 s\n"));
  reports[2].state->silent = {{1, 10s}};
  EXPECT_THAT(explain(reports).text, StartsWith("host b cannot be reached from host c: rank 2 "));
  EXPECT_THAT(explain(reports).ranks, ElementsAre(1, 2));
}

TEST(Explain, NamesAHostThatIsOutOfReachOfAllAsSuch) {
  std::vector<RankReport> reports = parted();
  reports[0].state->pending = {waiting("a")};
  reports[0].state->pending[0].is_agreed = true;
  reports[2] = unreached(2);
  EXPECT_EQ(explain(reports).kind, HangClass::unreachable);
}

TEST(Explain, DoesNotCallOperationsThatRunNotSubmitted) {
  std::vector<RankReport> reports{rank(0, {waiting("a")}), rank(1, {waiting("a")})};
  reports[0].state->pending[0].is_agreed = true;  // rank 1 has not heard of the agreement
  EXPECT_EQ(explain(reports).kind, HangClass::transfer);
}

TEST(Explain, FindsNothingInAHealthyJob) {
  std::vector<RankReport> reports{rank(0, {waiting("a", 20ms)}), rank(1)};
  EXPECT_EQ(explain(reports).kind, HangClass::none);
  EXPECT_EQ(explain(reports).text, "no rank has waited for another one for 1.0 s or longer");
  EXPECT_EQ(explain({}).text, "no rank has told what it waits for");
}

TEST(Dump, BeginsWithTheCauseAndShowsEveryRank) {
  const auto reports = awaited(at({{"/job/train.py", 30, "step", "with lock:"}}));
  const std::string text = dump_text(reports, {"host b did not answer"});
  EXPECT_THAT(text, StartsWith(explain(reports).text + "\nhost b did not answer\n"));
  for (const char* part :
       {"grad.fc.weight (allreduce float32 [4]), 12 s: submitted by ranks 0-2, not by rank 3\n",
        "\nRank 0, process 100\n",
        "    File \"/job/train.py\", line 30, in step\n      with lock:\n"})
    EXPECT_THAT(text, HasSubstr(part));
  const auto json = nlohmann::json::parse(dump_json(reports, {}));
  EXPECT_EQ(json["cause"]["class"], "lock");
  EXPECT_EQ(json["ranks"].size(), 4u);
  EXPECT_EQ(json["operations"][0]["missing"], std::vector<int>{3});
}

TEST(Dump, CountsOperationsThatWereSubmittedInARow) {
  RankReport report = rank(3);
  for (const int name : {'g', 'g', 'g', 'a', 'g'})
    report.state->last.push_back({std::string(1, static_cast<char>(name)), "allreduce", 12s});
  EXPECT_THAT(
      dump_text({report}, {}),
      HasSubstr("  submitted last: g (allreduce, 3 times) 12 s ago, a (allreduce) 12 s ago, "
                "g (allreduce) 12 s ago\n"));
}

TEST(Dump, FoldsTheFramesOfImports) {
  const Frame import{"<frozen importlib._bootstrap>", 1176, "_find_and_load", ""};
  const Frame load{"<frozen importlib._bootstrap_external>", 940, "exec_module", ""};
  RankReport report = at({import, load, load, {"/job/a.py", 1, "<module>", ""}, import});
  EXPECT_THAT(
      dump_text({report}, {}),
      HasSubstr("call first):\n    3 frames of importlib\n    File \"/job/a.py\", line 1, in "
                "<module>\n    File \"<frozen importlib._bootstrap>\", line 1176, in "));
}

TEST(Dump, OfTheCauseShowsTheMissingRankOnly) {
  const std::string text = cause_text(awaited(at({{"/job/train.py", 30, "step", "x()"}})));
  EXPECT_THAT(text, StartsWith(kAwaited));
  EXPECT_THAT(text, HasSubstr("\nRank 3, process 103\n"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("Rank 0")));
  EXPECT_EQ(cause_text({rank(0), rank(1)}), "");
}

TEST(RanksText, JoinsNeighbours) {
  EXPECT_EQ(ranks_text({3}), "rank 3");
  EXPECT_EQ(ranks_text({5, 0, 1, 2}), "ranks 0-2, 5");
  EXPECT_EQ(ranks_text({0, 1}), "ranks 0, 1");
}

}  // namespace
}  // namespace hvd::launcher
