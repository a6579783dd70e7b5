#include "launcher/dump/rank_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <nlohmann/json.hpp>

#include "launcher/dump/gathered.h"
#include "launcher/dump/proc.h"
#include "launcher/dump/py_spy.h"

namespace hvd::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

constexpr const char* kWritten =
    "main gil 1\n"
    "Current thread 0x00007f0000000000 (most recent call first):\n"
    "  File \"/usr/lib/python3.11/threading.py\", line 320 in wait\n"
    "  File \"/home/a b/data, line 3 in x.py\", line 88 in next_batch\n"
    "  File \"train.py\", line 5 in <module>\n";

TEST(WrittenStack, IsParsedFromWhatFaulthandlerWrites) {
  const std::vector<WrittenStack> all = parse_stacks(kWritten);
  ASSERT_EQ(all.size(), 1u);
  const WrittenStack& written = all.front();
  EXPECT_TRUE(written.is_main);
  EXPECT_TRUE(written.holds_gil);
  EXPECT_THAT(written.frames,
              ElementsAre(Frame{"/usr/lib/python3.11/threading.py", 320, "wait", ""},
                          Frame{"/home/a b/data, line 3 in x.py", 88, "next_batch", ""},
                          Frame{"train.py", 5, "<module>", ""}));
}

TEST(WrittenStack, OfAnotherThreadFollows) {
  const auto all =
      parse_stacks(std::string(kWritten) + "other gil 0\n  File \"a.py\", line 1 in f\n");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_FALSE(all[1].is_main);
  EXPECT_FALSE(all[1].holds_gil);
  EXPECT_THAT(all[1].frames, ElementsAre(Frame{"a.py", 1, "f", ""}));
}

TEST(WrittenStack, OfNothingIsNone) {
  EXPECT_TRUE(parse_stacks("").empty());
  EXPECT_TRUE(parse_stacks("  File \"a.py\", line 1 in f\n").empty());
}

TEST(Place, IsTheInnermostFrameOfTheUser) {
  std::vector<Frame> stack = parse_stacks(kWritten).front().frames;
  ASSERT_NE(place_in(stack), nullptr);
  EXPECT_EQ(to_text(*place_in(stack)), "data, line 3 in x.py:88 in next_batch");
  stack.resize(1);
  EXPECT_EQ(place_in(stack)->function, "wait");
  stack.clear();
  EXPECT_EQ(place_in(stack), nullptr);
}

TEST(RankReport, SurvivesJson) {
  const RankReport report{
      .rank = 3,
      .host = "a",
      .worker = "0/1/2",
      .process = 4711,
      .run_state = 'T',
      .outlives_main = true,
      .kernel = "read of /data",
      .is_reached = false,
      .has_board = true,
      .stage = RankStage::next_generation,
      .stage_age = std::chrono::milliseconds(1234),
      .answers = true,
      .holds_gil = true,
      .gil_holder = parse_stacks(kWritten).front().frames,
      .state = BoardState{.rank = 3,
                          .size = 4,
                          .generation = 2,
                          .step = 7,
                          .batches = 9,
                          .pending = {{"x", "allreduce", {1, 3}, std::chrono::milliseconds(1234)}},
                          .more_pending = 1,
                          .last = {{"y", "barrier", std::chrono::milliseconds(5)}},
                          .last_failure = "why",
                          .since_failure = std::chrono::milliseconds(77),
                          .silent = {{1, std::chrono::milliseconds(4100)}}},
      .stack = parse_stacks(kWritten).front().frames};
  EXPECT_EQ(report_from_json(nlohmann::json::parse(to_json(report).dump())), report);
  EXPECT_EQ(report_from_json(to_json(RankReport{})), RankReport{});
}

TEST(RankReport, TakesIntegersOnlyWhereItNeedsThem) {
  const RankReport report{
      .rank = 1,
      .state = BoardState{.pending = {{"x", "allreduce", {1}}}, .silent = {{.rank = 2}}},
      .stack = {{"a.py", 1, "f", ""}}};
  const nlohmann::json whole = to_json(report);
  for (const char* place : {"/rank", "/process", "/state/rank", "/state/size", "/state/generation",
                            "/state/step", "/state/batches", "/state/more_pending",
                            "/state/pending/0/ranks/0", "/state/silent/0/rank", "/stack/0/line"})
    for (const nlohmann::json& wrong : {nlohmann::json(1e300), nlohmann::json(1.5),
                                        nlohmann::json("1"), nlohmann::json(nullptr)}) {
      nlohmann::json json = whole;
      json[nlohmann::json::json_pointer(place)] = wrong;
      EXPECT_THROW(report_from_json(json), nlohmann::json::exception) << place << " " << wrong;
    }
}

TEST(RankReport, CutsTimesThatCannotBe) {
  RankReport report{.state = BoardState{.pending = {{.name = "x"}}}};
  nlohmann::json json = to_json(report);
  for (const double seconds : {1e300, -1e300, 1e16, -1.0}) {
    json["state"]["pending"][0]["seconds"] = seconds;
    json["state"]["since_failure"] = seconds;
    const RankReport read = report_from_json(json);
    const auto most = std::chrono::milliseconds(1'000'000'000'000'000);
    const auto expected = seconds > 0 ? most : std::chrono::milliseconds(0);
    EXPECT_EQ(read.state->pending[0].age, expected) << seconds;
    EXPECT_EQ(read.state->since_failure, expected) << seconds;
  }
}

TEST(RankReport, HasNotEndedWithItsMainThread) {
  RankReport report{.process = 4711, .run_state = 'Z'};
  EXPECT_TRUE(report.has_ended());
  report.outlives_main = true;
  EXPECT_FALSE(report.has_ended());
}

TEST(SpiedStack, IsThatOfTheMainThread) {
  const auto stack = spied_stack(R"([
      {"thread_name": "Thread-1", "frames": [{"name": "g", "filename": "b.py", "line": 1}]},
      {"thread_name": "MainThread", "owns_gil": false, "frames": [
          {"name": "read", "filename": "/x/a.py", "line": 4, "module": null},
          {"name": "<module>", "filename": "/x/a.py", "line": 5}]}])");
  EXPECT_THAT(stack,
              ElementsAre(Frame{"/x/a.py", 4, "read", ""}, Frame{"/x/a.py", 5, "<module>", ""}));
}

TEST(SpiedStack, OfNonsenseIsNone) {
  for (const char* text :
       {"", "[", "{}", "[1]", R"([{"thread_name": "MainThread"}])",
        R"([{"thread_name": "MainThread", "frames": [{"name": "f", "filename": 3, "line": 1}]}])"})
    EXPECT_TRUE(spied_stack(text).empty()) << text;
}

TEST(BlockedCall, NamesTheDescriptorOfAReadOrWrite) {
  const auto call = parse_syscall(std::to_string(SYS_read) + " 0x3 0x7fb7 0x20000 0x0 0x7ff 0x7f");
  ASSERT_TRUE(call);
  EXPECT_EQ(call->name, "read");
  EXPECT_EQ(call->descriptor, 3);
  EXPECT_EQ(parse_syscall(std::to_string(SYS_openat) + " 0xffffff9c 0x1")->descriptor, -1);
  EXPECT_EQ(parse_syscall(std::to_string(SYS_statx) + " 0xffffff9c 0x1")->name, "stat");
  EXPECT_EQ(parse_syscall(std::to_string(SYS_getdents64) + " 0x4 0x1")->name, "readdir");
  EXPECT_EQ(parse_syscall(std::to_string(SYS_fsync) + " 0x7 0x1")->descriptor, 7);
  EXPECT_FALSE(parse_syscall(std::to_string(SYS_futex) + " 0x3 0x1"));
  EXPECT_FALSE(parse_syscall("running"));
  EXPECT_FALSE(parse_syscall(""));
}

TEST(Gathered, SurvivesText) {
  const Gathered all{.reports = {{.rank = 1}, {.rank = 2}}, .remarks = {"b has not told"}};
  const auto read = read_gathered(to_text(all));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->reports, all.reports);
  EXPECT_EQ(read->remarks, all.remarks);
  EXPECT_EQ(reports_in(to_text(all.reports)), all.reports);
}

TEST(Gathered, IsNoneIfMalformed) {
  for (const char* text : {"", "[]", "{}", R"({"reports": [{}], "remarks": []})"})
    EXPECT_FALSE(read_gathered(text)) << text;
  for (const char* text : {"", "[", "[{}]", "[1]", R"([{"rank": "x"}])"})
    EXPECT_FALSE(reports_in(text)) << text;
}

TEST(Gathered, HasAllRanksOfAJobThatIsKnownInPart) {
  std::vector<RankReport> reports{{.rank = 2, .state = BoardState{.rank = 2, .size = 4}},
                                  {.rank = 0, .state = BoardState{.rank = 0, .size = 4}}};
  add_unknown_ranks(reports);
  ASSERT_EQ(reports.size(), 4u);
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(reports[static_cast<size_t>(rank)].rank, rank);
    EXPECT_EQ(reports[static_cast<size_t>(rank)].is_reached, rank % 2 == 0);
  }
}

}  // namespace
}  // namespace hvd::launcher
