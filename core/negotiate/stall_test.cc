#include "core/negotiate/stall.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hvd {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr uint32_t kOld = 2;  // ticks: at least one whole period

Waiting waits_for(std::vector<WaitingName> names, std::string last = "x") {
  return {.names = std::move(names), .last = std::move(last)};
}

TEST(Stall, TellsWhoMissesAnOperationAndWhatItDoesInstead) {
  StallReport report;
  report[waits_for({{0, "grad.w", 3}}, "grad.w")] = {0, 1, 3};
  report[waits_for({{0, "metric", kOld}}, "metric")] = {2};
  const std::string text = describe_stall(report, {});
  EXPECT_THAT(text, HasSubstr("\nMissing ranks:\n"
                              "0: [metric]\n"
                              "1: [metric]\n"
                              "2: [grad.w]\n"
                              "3: [metric]\n"));
  EXPECT_THAT(text, HasSubstr("grad.w has waited for 120 s or more: submitted by ranks 0, 1, 3, "
                              "not by rank 2\n"));
  EXPECT_THAT(text, HasSubstr("metric has waited for 60 s or more: submitted by rank 2, not by "
                              "ranks 0, 1, 3\n"));
  EXPECT_THAT(text, HasSubstr("rank 2: pending there: [metric], submitted last: metric"));
  EXPECT_NE(text.back(), '\n');
}

TEST(Stall, SaysThatARankHasNothingPending) {
  StallReport report;
  report[waits_for({{0, "w", kOld}})] = {0};
  report[waits_for({}, "loss")] = {1};
  report[waits_for({}, "")] = {2};
  const std::string text = describe_stall(report, {});
  EXPECT_THAT(text, HasSubstr("rank 1: nothing is pending there, submitted last: loss"));
  EXPECT_THAT(text, HasSubstr("rank 2: nothing is pending there, nothing was ever submitted"));
}

TEST(Stall, IsSilentAboutWhatHasNotWaitedForLong) {
  StallReport report;
  report[waits_for({{0, "young", kOld - 1}})] = {0};
  report[waits_for({})] = {1};
  EXPECT_EQ(describe_stall(report, {}), "");
  report[waits_for({{0, "old", kOld}})] = {2};
  const std::string text = describe_stall(report, {});
  EXPECT_THAT(text, HasSubstr("\n0: [old]\n1: [old]\n"));
  EXPECT_THAT(text, Not(HasSubstr("young has waited")));
}

TEST(Stall, IsSilentAboutWhatHasMovedOn) {
  StallReport report;
  report[waits_for({})] = {0, 1};
  EXPECT_EQ(describe_stall(report, {}), "");
}

TEST(Stall, ListsAtMostSixNamesARank) {
  StallReport report;
  std::vector<WaitingName> names;
  for (char name = 'a'; name <= 'h'; ++name) names.push_back({0, std::string(1, name), kOld});
  report[waits_for(names)] = {0};
  report[waits_for({})] = {1};
  EXPECT_THAT(describe_stall(report, {}), HasSubstr("\n1: [a, b, c, d, e, f ...]\n"));
}

TEST(Stall, WaitsForNobodyWhoHasJoined) {
  StallReport report;
  report[waits_for({{0, "w", kOld}})] = {0};
  report[waits_for({})] = {1};
  Waiting joined = waits_for({});
  joined.joined = true;
  report[joined] = {2};
  const std::string text = describe_stall(report, {});
  EXPECT_THAT(text, HasSubstr("\n1: [w]\n"));
  EXPECT_THAT(text, Not(HasSubstr("\n2: [")));
}

TEST(Stall, WaitsOnlyForMembersOfASet) {
  StallReport report;
  report[waits_for({{5, "w", kOld}})] = {0};
  report[waits_for({})] = {1, 2};
  const std::string text = describe_stall(report, {.process_sets = {{5, {0, 2}}}});
  EXPECT_THAT(text, HasSubstr("\n2: [w]\n"));
  EXPECT_THAT(text, Not(HasSubstr("\n1: [")));
}

TEST(Stall, WaitsOnlyForTheRanksOfAMessage) {
  StallReport report;
  report[waits_for({{0, "message.0-2.0.5", kOld, {0, 2}}})] = {0};
  report[waits_for({{0, "message.1-3.0.5", kOld, {1, 3}}})] = {3};
  report[waits_for({})] = {1, 2};
  const std::string text = describe_stall(report, {});
  EXPECT_THAT(text, HasSubstr("\nMissing ranks:\n1: [message.1-3.0.5]\n2: [message.0-2.0.5]\n"));
  EXPECT_THAT(text, HasSubstr("message.0-2.0.5 has waited for 60 s or more: submitted by rank 0, "
                              "not by rank 2\n"));
}

TEST(Stall, IsSilentAboutASetThatHasMeanwhileBeenRemoved) {
  StallReport report;
  report[waits_for({{5, "w", kOld}})] = {0};
  report[waits_for({})] = {1};
  EXPECT_EQ(describe_stall(report, {}), "");
}

TEST(Stall, NamesRanksThatDoNotAnswer) {
  StallReport report;
  report[waits_for({{0, "w", kOld}})] = {0, 1};
  report[{.silent = true}] = {2, 3};
  const std::string text = describe_stall(report, {});
  EXPECT_THAT(text, HasSubstr("no answer from ranks 2, 3"));
  EXPECT_THAT(text, HasSubstr("\n2: [w]\n3: [w]\n")) << "no other rank can be missing";
}

TEST(Stall, DoesNotBlameTheSilentWhenAnotherIsKnownToMissIt) {
  StallReport report;
  report[waits_for({{0, "w", kOld}})] = {0};
  report[waits_for({})] = {1};
  report[{.silent = true}] = {2};
  const std::string text = describe_stall(report, {});
  EXPECT_THAT(text, HasSubstr("\n1: [w]\n"));
  EXPECT_THAT(text, Not(HasSubstr("\n2: [")));
  EXPECT_THAT(text, HasSubstr("no answer from rank 2"));
}

TEST(Stall, DoesNotBlameARankThatCouldNotTellEverything) {
  StallReport report;
  report[waits_for({{0, "w", kOld}})] = {0};
  Waiting busy = waits_for({{0, "v", kOld}});
  busy.more = 10;
  report[busy] = {1};
  report[waits_for({})] = {2};
  EXPECT_THAT(describe_stall(report, {}), HasSubstr("not by rank 2\n"));
}

TEST(Stall, TellsWhichSilentRankHoldsUpWhatAllHaveSubmitted) {
  StallReport report;
  report[waits_for({{1, "x", kOld}})] = {0};
  report[{.silent = true}] = {2};
  const StallFacts facts{.process_sets = {{1, {0}}}};
  const std::string text = describe_stall(report, facts);
  EXPECT_THAT(text, HasSubstr("\nMissing ranks:\n2: [x]\n"));
  EXPECT_THAT(text, HasSubstr("x has waited for 60 s or more: submitted by rank 0, but behind a "
                              "batch that waits for rank 2\n"));
  EXPECT_THAT(text, HasSubstr("no answer from rank 2: stopped, or not reachable"));
}

TEST(Stall, ShortensRunsOfRanks) {
  StallReport report;
  report[waits_for({{0, "w", kOld}})] = {0, 1, 2, 3, 7, 9, 10};
  report[waits_for({})] = {4};
  EXPECT_THAT(describe_stall(report, {}), HasSubstr("submitted by ranks 0-3, 7, 9, 10, not"));
}

TEST(Stall, MarksRanksBeyondTheLimitAndEndsTheJob) {
  StallReport report;
  report[waits_for({{0, "old", 4}, {0, "young", kOld}})] = {0};
  report[waits_for({{0, "old", 4}})] = {1};
  report[waits_for({{0, "young", kOld}})] = {2};
  const StallFacts facts{
      .process_sets = {}, .tick = std::chrono::seconds(10), .shutdown = std::chrono::seconds(30)};
  EXPECT_TRUE(stall_ends_job(report, facts));
  const std::string text = describe_stall(report, facts);
  EXPECT_THAT(text, HasSubstr("Missing ranks:\n1: [young]\n2!: [old]\n"));
  EXPECT_THAT(
      text,
      HasSubstr(
          "rank 2 did not submit operations that other ranks have waited for longer than the limit "
          "of 30 s, so the job is shut down"));
}

TEST(Stall, EndsTheJobForAnOperationWhoseTimeoutHasExpired) {
  StallReport report;
  report[waits_for({{.name = "w", .expired_ms = 2500}})] = {0};
  report[waits_for({{.name = "w"}})] = {1};
  report[waits_for({})] = {2};
  EXPECT_TRUE(stall_ends_job(report, {}));
  const std::string text = describe_stall(report, {});
  EXPECT_THAT(text, HasSubstr("rank 2 did not submit operations that other ranks have waited for "
                              "longer than their timeout, so the job is shut down.\n"));
  EXPECT_THAT(text, HasSubstr("\n2!: [w]\nw has waited for 2.5 s, its timeout: submitted by ranks "
                              "0, 1, not by rank 2\n"));
  report.clear();
  report[waits_for({})] = {0, 1, 2};
  EXPECT_FALSE(stall_ends_job(report, {})) << "the last rank has come meanwhile";
}

TEST(Stall, DoesNotEndTheJobForAnUnrelatedRankThatIsSilent) {
  StallReport report;
  report[waits_for({{.name = "m", .between = {0, 1}, .expired_ms = 2500},
                    {.group = 1, .name = "x", .expired_ms = 2500}})] = {0};
  report[waits_for({{.name = "m", .between = {0, 1}}, {.group = 1, .name = "x"}})] = {1};
  report[{.silent = true}] = {2};
  const StallFacts facts{.process_sets = {{1, {0, 1}}}};
  EXPECT_FALSE(stall_ends_job(report, facts)) << "all their ranks have submitted them";
  EXPECT_EQ(describe_stall(report, facts), "");
}

TEST(Stall, DoesNotBlameAllRanksThatCouldNotTellEverything) {
  StallReport report;
  report[waits_for({{.name = "w", .expired_ms = 2500}})] = {0};
  Waiting busy = waits_for({{0, "v", kOld}});
  busy.more = 10;
  report[busy] = {1, 2};
  const std::string text = describe_stall(report, {});
  EXPECT_THAT(text, HasSubstr("one or more of ranks 1, 2 did not submit operations"));
  EXPECT_THAT(text, HasSubstr("submitted by rank 0, not by one or more of ranks 1, 2\n"));
  report[waits_for({})] = {3};
  EXPECT_THAT(describe_stall(report, {}), testing::StartsWith("rank 3 did not submit operations"));
}

TEST(Stall, ListsFirstWhatEndsTheJob) {
  StallReport report;
  std::vector<WaitingName> names;
  for (int i = 10; i < 40; ++i) names.push_back({0, "op" + std::to_string(i), kOld});
  names.push_back({.name = "zero", .expired_ms = 500});
  report[waits_for(names)] = {0};
  report[waits_for({})] = {1};
  const std::string text = describe_stall(report, {});
  EXPECT_THAT(text, HasSubstr("\n1!: [zero, op10, op11, op12, op13, op14 ...]\nzero has waited for "
                              "0.5 s, its timeout"));
  EXPECT_THAT(text, HasSubstr("and 11 more operations\n"));
}

TEST(Stall, NeverEndsTheJobWithoutALimit) {
  StallReport report;
  report[waits_for({{0, "w", 1000}})] = {0};
  report[waits_for({})] = {1};
  EXPECT_FALSE(stall_ends_job(report, {}));
}

TEST(Stall, SumsUpWhatIsTooMuchToList) {
  StallReport report;
  std::vector<WaitingName> names;
  for (int i = 0; i < 30; ++i) names.push_back({0, "op" + std::to_string(i), kOld});
  report[waits_for(names)] = {0};
  report[waits_for({})] = {1};
  EXPECT_THAT(describe_stall(report, {}), HasSubstr("and 10 more operations\n"));
}

}  // namespace
}  // namespace hvd
