#include "launcher/driver/start_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hvd::launcher {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

StartRow row(const char* host, StartStep step, const char* problem = "") {
  StartRow made;
  made.host = host;
  made.step = step;
  made.problem = problem;
  return made;
}

TEST(StartTable, SaysWhichStepFailedWhereAndWhatHelps) {
  std::vector<StartRow> rows{row("a", StartStep::ready), row("node-b", StartStep::ready),
                             row("c", StartStep::program, "no python")};
  rows[0].local = true;
  rows[2].advice = {"install it", "or not"};
  EXPECT_THAT(start_table(rows),
              ElementsAre("the job was not started: 1 of 3 hosts is not ready",
                          "  host    resolve  ssh     agent   program  connect back",
                          "  a       -        -       -       ok       -",
                          "  node-b  ok       ok      ok      ok       ok",
                          "  c       ok       ok      ok      FAILED   -", "c: program: no python",
                          "    install it", "    or not"));
}

TEST(StartTable, ManyHostsAreCutToThoseThatFailed) {
  std::vector<StartRow> rows(100, row("good", StartStep::ready));
  rows.resize(150, row("bad", StartStep::ssh, "down"));
  const auto lines = start_table(rows);
  EXPECT_THAT(lines.front(), HasSubstr("50 of 150 hosts are not ready"));
  EXPECT_THAT(lines, SizeIs(2 + 32 + 32));
}

TEST(StartTable, AHostWhoseTimeIsUpFailsAtTheStepItWasAt) {
  EXPECT_EQ(timed_out(row("a", StartStep::ready), 5), row("a", StartStep::ready));
  EXPECT_EQ(timed_out(row("a", StartStep::ssh, "no"), 5), row("a", StartStep::ssh, "no"));
  const StartRow silent = timed_out(row("a", StartStep::resolve), 5);
  EXPECT_EQ(silent.step, StartStep::ssh);
  EXPECT_EQ(silent.problem, "no answer through ssh within 5 s");
  EXPECT_THAT(silent.advice, Contains(HasSubstr("--start-timeout")));
  EXPECT_EQ(timed_out(row("a", StartStep::program), 5).step, StartStep::program);
}

TEST(StartTable, IsToldToProgramsAsJson) {
  StartRow failed = row("b", StartStep::ssh, "says \xff");
  failed.advice = {"do this"};
  const std::string text = start_json({row("a", StartStep::ready), failed});
  EXPECT_THAT(text, HasSubstr(R"("host":"a")"));
  EXPECT_THAT(text, HasSubstr(R"("ready":true)"));
  EXPECT_THAT(text, HasSubstr(R"("step":"ssh")"));
  EXPECT_THAT(text, HasSubstr(R"("advice":["do this"])"));
}

TEST(StartTable, SaysFromWhichHostAnotherWasReachedInVain) {
  const StartRow far{.host = "c",
                     .from = "b",
                     .step = StartStep::ssh,
                     .problem = "Connection refused",
                     .advice = {"start it"}};
  const StartRow behind = without_way({.host = "d", .untried = true, .from = "c"}, "c");
  const StartRow waited = timed_out({.host = "e", .untried = true, .from = "c"}, 3);
  EXPECT_THAT(
      start_table({{.host = "b", .step = StartStep::ready}, far, behind, waited}),
      ElementsAre("the job was not started: 3 of 4 hosts are not ready",
                  "  host  resolve  ssh     agent   program  connect back",
                  "  b     ok       ok      ok      ok       ok",
                  "  c     ok       FAILED  -       -        -",
                  "  d     -        -       -       -        -",
                  "  e     -        -       -       -        -",
                  "c: ssh from b: Connection refused", "    start it",
                  "    run these on b, which starts its agent; or let this machine start more "
                  "agents itself: horovodrun --agent-fan-out 1000 ...",
                  "d: not tried, since it is reached from c",
                  "e: not tried, since it is reached from c"));
}

TEST(CpusText, NamesRanksOfTheJob) {
  EXPECT_EQ(cpus_text({.cpus = {"0-1,4-5", "2-3,6-7"}}, 4), "rank 4: 0-1,4-5; rank 5: 2-3,6-7");
  EXPECT_EQ(cpus_text({.not_bound = "too few cores"}, 0), "not bound: too few cores");
  EXPECT_EQ(cpus_text({}, 0), "not bound");
}

TEST(StartTable, AHostThatWasReadyFailsWithTheOneThatReachesIt) {
  const StartRow row = without_way({.host = "c", .from = "b", .step = StartStep::ready}, "a");
  EXPECT_TRUE(row.failed());
  EXPECT_THAT(start_table({row}),
              Contains("c: ssh from b: a, through which it is reached, was lost"));
  EXPECT_THAT(start_table({row}), Not(Contains(HasSubstr("run these"))));
  const StartRow failed{.host = "c", .from = "b", .step = StartStep::program, .problem = "no"};
  EXPECT_EQ(without_way(failed, "b"), failed);
}

}  // namespace
}  // namespace hvd::launcher
