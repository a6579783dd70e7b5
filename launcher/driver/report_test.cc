#include "launcher/driver/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <set>
#include <string>

#include "core/transport/job_number.h"
#include "launcher/driver/last_word.h"

namespace hvd::launcher {
namespace {

using ::testing::ElementsAre;
using Kind = Announce::Kind;

/// Rank 2 is on host 1.
const Assignment kAssignment = assign_ranks({{0, 0}, {0, 1}, {1, 0}}, 0);

std::vector<std::string> told(const Announce& announce, const std::vector<std::string>& tail = {},
                              const std::string& host = "") {
  return report(announce, kAssignment, tail, host);
}

TEST(Report, NamesEverySignalThatIsNotARealTimeOne) {
  std::set<std::string> names;
  for (int signal = 1; signal < __SIGRTMIN; ++signal) names.insert(signal_name(signal));
  EXPECT_EQ(names.size(), 31u) << "two signals have the same name";
  EXPECT_FALSE(names.contains("unknown"));
  EXPECT_EQ(signal_name(SIGHUP), "SIGHUP");
  EXPECT_EQ(signal_name(SIGABRT), "SIGABRT");
  EXPECT_EQ(signal_name(SIGPOLL), "SIGPOLL");
  EXPECT_EQ(signal_name(SIGSYS), "SIGSYS");
  EXPECT_EQ(signal_name(SIGRTMIN), "unknown");
  EXPECT_EQ(signal_name(0), "unknown");
}

TEST(Report, NamesTheFirstFailureWithItsLastLines) {
  EXPECT_THAT(told({.kind = Kind::first, .worker = {1, 0}, .status = {.code = 3}}, {"a", "b"}),
              ElementsAre("rank 2 exited with code 3; its last lines:", "    a", "    b"));
  EXPECT_THAT(told({.kind = Kind::first, .worker = {1, 0}, .status = {.signal = SIGSEGV}}),
              ElementsAre("rank 2 was killed by signal 11 (SIGSEGV); it wrote nothing"));
}

TEST(Report, TellsWhomTheFirstFailureBlames) {
  EXPECT_THAT(told({.kind = Kind::first,
                    .worker = {0, 0},
                    .status = {.code = 1},
                    .cause = WorkerId{0, 1},
                    .reason = "silent"}),
              ElementsAre("rank 0 exited with code 1; it reported rank 1 as the cause (silent); "
                          "it wrote nothing"));
}

TEST(Report, TellsWhichRankIsSilentWhenAllOthersHaveEnded) {
  const AnnounceSilent silent{{1, 0}, "it is stopped"};
  EXPECT_EQ(report(silent, kAssignment), "rank 2 was given up: it is stopped");
  EXPECT_EQ(report(silent, kAssignment, "b"), "rank 2 on b was given up: it is stopped");
}

TEST(Report, TellsThoseWhoWaitInInitWhoIsLost) {
  EXPECT_EQ(told_to_others({.kind = Kind::first, .worker = {1, 0}, .status = {.signal = SIGKILL}},
                           kAssignment),
            "rank 2 is lost: its process was killed by signal 9 (SIGKILL). The job has ended; look "
            "for the cause in the output of rank 2");
  EXPECT_EQ(told_to_others({.kind = Kind::first,
                            .worker = {0, 0},
                            .status = {.code = 1},
                            .cause = WorkerId{1, 0},
                            .reason = "silent"},
                           kAssignment, "a"),
            "rank 2 is lost, as rank 0 on host a has reported: silent. The job has ended");
  EXPECT_EQ(told_to_others(AnnounceHost{.host = 1, .workers = {{1, 0}}, .why = "ssh has ended"},
                           kAssignment, "b"),
            "host b was lost with rank 2: ssh has ended. The job has ended");
  EXPECT_EQ(told_to_others(AnnounceSilent{{1, 0}, "its process is stopped"}, kAssignment, "b"),
            "rank 2 on host b is lost: its process is stopped. The job has ended");
  EXPECT_EQ(told_to_others(RefuseStarts{{1, 0}}, kAssignment, "b"),
            "rank 2 is missing: its process on host b has ended with exit code 0, and no job of "
            "all ranks begins "
            "without it");
}

TEST(Report, MarksConsequencesAsSuch) {
  EXPECT_THAT(told({.kind = Kind::consequence,
                    .worker = {0, 0},
                    .status = {.code = 1},
                    .cause = WorkerId{0, 1},
                    .reason = "lost"},
                   {"noise"}),
              ElementsAre("rank 0 exited with code 1 as a consequence of rank 1"));
  EXPECT_THAT(told({.kind = Kind::later, .worker = {0, 0}, .status = {.code = 1}}),
              ElementsAre("rank 0 exited with code 1 after the first failure"));
  EXPECT_THAT(told({.kind = Kind::stopped, .worker = {0, 0}, .status = {.signal = SIGKILL}}),
              ElementsAre("rank 0 was stopped (SIGKILL)"));
  EXPECT_THAT(told({.kind = Kind::stopped, .worker = {0, 0}, .status = {.code = 143}}),
              ElementsAre("rank 0 was stopped (SIGTERM)"));
}

TEST(Report, NamesTheHostInAJobOfSeveral) {
  EXPECT_THAT(told({.kind = Kind::later, .worker = {1, 0}, .status = {.code = 1}}, {}, "far"),
              ElementsAre("rank 2 on far exited with code 1 after the first failure"));
  EXPECT_EQ(report(AnnounceHost{1, {{1, 0}}, "cut"}, kAssignment, "far"),
            "far was lost with rank 2: cut");
  EXPECT_EQ(report(AnnounceHost{0, {{0, 0}, {0, 1}}, "cut"}, kAssignment, "box"),
            "box was lost with ranks 0, 1: cut");
  EXPECT_EQ(report(AnnounceHost{1, {}, "cut"}, kAssignment, "far"),
            "far was lost after its ranks had ended: cut");
}

TEST(Report, NamesAWorkerThatHasNoRankAnyMoreByItsSlot) {
  EXPECT_THAT(told({.kind = Kind::later, .worker = {1, 0, 1}, .status = {.code = 1}}),
              ElementsAre("worker 1 in slot 0 exited with code 1 after the first failure"));
}

TEST(Report, TellsByWhichSignalAJobEndsAndHow) {
  using std::chrono_literals::operator""ms;
  EXPECT_EQ(report(AnnounceEnd{{SIGINT}, SIGINT, 2500ms}),
            "SIGINT: interrupting all ranks; SIGTERM follows in 2.5 s, or with another SIGINT");
  EXPECT_THAT(report(AnnounceEnd{{SIGINT}, SIGINT, 5668ms}),
              ::testing::HasSubstr(" follows in 5.7 s, "));
  EXPECT_EQ(report(AnnounceEnd{{SIGHUP}, SIGTERM, {}}), "SIGHUP: ending all ranks");
  EXPECT_EQ(report(AnnounceEnd{{SIGINT}, SIGKILL, {}}), "SIGINT: killing all ranks");
  EXPECT_EQ(report(AnnounceEnd{{SIGTERM, true}, SIGTERM, {}}),
            "the process that started this job has ended; ending all ranks");
}

TEST(Report, TellsWhyAProgramWasNotStarted) {
  EXPECT_EQ(why_not_started(ENOEXEC), "it is neither a program nor a script that begins with #!");
  EXPECT_THAT(why_not_started(EAGAIN), ::testing::HasSubstr("raise ulimit -u"));
  EXPECT_EQ(why_not_started(ENOENT), "No such file or directory");
}

TEST(LastWord, NamesNumberRankCauseAndReason) {
  const auto word = parse_last_word("ended/65538/13", "4 its process ended");
  ASSERT_TRUE(word.has_value());
  EXPECT_EQ(word->number, job_number(1, 2));
  EXPECT_EQ(word->rank, 13);
  EXPECT_EQ(word->cause, 4);
  EXPECT_EQ(word->reason, "its process ended");
  EXPECT_FALSE(word->is_silent);
  const auto silent = parse_last_word("ended/65538/13", "4! it is stopped");
  ASSERT_TRUE(silent.has_value());
  EXPECT_EQ(silent->cause, 4);
  EXPECT_EQ(silent->reason, "it is stopped");
  EXPECT_TRUE(silent->is_silent);
}

TEST(LastWord, OfAnotherFormIsNone) {
  EXPECT_FALSE(parse_last_word("other/1/2", "3 x"));
  EXPECT_FALSE(parse_last_word("ended/1", "3 x"));
  EXPECT_FALSE(parse_last_word("ended/1/", "3 x"));
  EXPECT_FALSE(parse_last_word("ended/1/2x", "3 x"));
  EXPECT_FALSE(parse_last_word("ended/1/2", "x"));
  EXPECT_FALSE(parse_last_word("ended/-1/2", "3 x"));
}

TEST(LastWord, IsThatOfTheWorkersWithTheseRanks) {
  const auto ends = worker_ends({job_number(0, 3), 2, 1, "lost"}, kAssignment);
  ASSERT_TRUE(ends.has_value());
  EXPECT_EQ(ends->worker, (WorkerId{1, 0}));
  EXPECT_EQ(ends->cause, (WorkerId{0, 1}));
  EXPECT_EQ(ends->reason, "lost");
  EXPECT_FALSE(worker_ends({job_number(0, 1), 0, 3, "no such rank"}, kAssignment));
  EXPECT_FALSE(worker_ends({job_number(0, 1), 0, -1, "no such rank"}, kAssignment));
  EXPECT_FALSE(worker_ends({job_number(1, 1), 0, 1, "another generation"}, kAssignment));
}

TEST(Report, SaysHowLongItWaitsForAHost) {
  EXPECT_EQ(report_left_there("b", std::chrono::seconds(9)),
            "host b does not answer; waiting up to 9 s more");
  EXPECT_EQ(report_left_here("a", std::chrono::seconds(9)),
            "processes of the job on a have not ended after SIGKILL; waiting up to 9 s more");
}

}  // namespace
}  // namespace hvd::launcher
