#include "job/start_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hvd::job {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
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

}  // namespace
}  // namespace hvd::job
