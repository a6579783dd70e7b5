// The trace file: valid after every write, and what its lines say.
#include "core/observe/timeline.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/base/error.h"

namespace hvd {
namespace {

using nlohmann::json;
using std::chrono_literals::operator""us;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

const TimePoint kStart{std::chrono::hours(5)};

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

/// "B NEGOTIATE_ALLREDUCE 1 at 3", of what is not metadata.
std::vector<std::string> events_in(const std::string& path) {
  std::vector<std::string> lines;
  for (const json& event : json::parse(text_of(path))) {
    if (event["ph"] == "M") continue;
    std::string line = fmt::format("{} {}", std::string(event["ph"]), std::string(event["name"]));
    if (event.contains("pid")) line += fmt::format(" {}", int(event["pid"]));
    lines.push_back(line + fmt::format(" at {}", int(event["ts"])));
  }
  return lines;
}

/// Metadata of `name` by pid.
std::map<int, json> metadata_in(const std::string& path, const std::string& name) {
  std::map<int, json> found;
  for (const json& event : json::parse(text_of(path)))
    if (event["ph"] == "M" && event["name"] == name) found[event["pid"]] = event["args"];
  return found;
}

class TimelineTest : public testing::Test {
 protected:
  TimelineTest() { std::filesystem::create_directories(folder_); }
  ~TimelineTest() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name = "trace.json") const { return folder_ + "/" + name; }
  Timeline begun(bool mark_cycles = false) const {
    Timeline timeline(path(), mark_cycles);
    timeline.begin(kStart, 1700000000000000us);
    return timeline;
  }
  static Event event(Event::Type type, int at, const std::string& name = "x") {
    return {.type = type,
            .time = kStart + std::chrono::microseconds(at),
            .name = name,
            .operation = {.dtype = DType::float32},
            .bytes = 32,
            .rank = 3,
            .shapes = {{4, 2}}};
  }
  static Event activity(Event::Activity activity, int at) {
    Event made = event(Event::Type::activity, at);
    made.activity = activity;
    return made;
  }
  /// The names of the spans that begin when an operation is agreed and when its data is moved.
  std::vector<std::string> words(Operation operation, Mover mover = Mover::host) const {
    Timeline timeline = begun();
    std::vector<Event> events = {event(Event::Type::agreed, 1), activity(Event::Activity::data, 2)};
    for (Event& one : events) one.operation = operation;
    events.back().route.mover = mover;
    timeline.take(events);
    std::vector<std::string> found;
    for (const json& line : json::parse(text_of(path())))
      if (line["ph"] == "B") found.push_back(line["name"]);
    return found;
  }
  static void take(Timeline& timeline, const Event& event) { timeline.take({&event, 1}); }

 private:
  const std::string folder_ = testing::TempDir() + "/timeline." + std::to_string(::getpid());
};

TEST_F(TimelineTest, BeginsWithTheTimeAndIsAnArrayOfItsOwnFromTheStart) {
  const Timeline timeline = begun();
  EXPECT_THAT(text_of(path()), StartsWith("[\n"));
  EXPECT_EQ(text_of(path()).back(), ']');
  EXPECT_EQ(metadata_in(path(), "process_name")[0],
            json({{"start_time_since_epoch_in_micros", 1700000000000000}}));
  EXPECT_EQ(metadata_in(path(), "process_sort_index").size(), 1);
}

TEST_F(TimelineTest, AnOperationIsAgreedThenRunsAndEndsWithItsShape) {
  Timeline timeline = begun();
  const Event all[] = {
      event(Event::Type::ready, 1),         event(Event::Type::agreed, 5),
      activity(Event::Activity::queued, 5), activity(Event::Activity::data, 7),
      event(Event::Type::done, 9),
  };
  timeline.take(all);
  EXPECT_THAT(
      events_in(path()),
      ElementsAre("B NEGOTIATE_ALLREDUCE 1 at 1", "X 3 1 at 1", "E NEGOTIATE_ALLREDUCE 1 at 5",
                  "B ALLREDUCE 1 at 5", "B QUEUE 1 at 5", "E QUEUE 1 at 7",
                  "B GLOO_ALLREDUCE 1 at 7", "E GLOO_ALLREDUCE 1 at 9", "E ALLREDUCE 1 at 9"));
  const json last = json::parse(text_of(path())).back();
  EXPECT_EQ(last["args"], json({{"dtype", "float32"}, {"shape", "[4, 2]"}}));
}

TEST_F(TimelineTest, OperationsAreNamedByKindAndMovingByWhoMoves) {
  using Kind = OperationKind;
  EXPECT_THAT(words({.kind = Kind::allreduce}), ElementsAre("ALLREDUCE", "GLOO_ALLREDUCE"));
  EXPECT_THAT(words({.kind = Kind::allgather}), ElementsAre("ALLGATHER", "GLOO_ALLGATHER"));
  EXPECT_THAT(words({.kind = Kind::broadcast}), ElementsAre("BROADCAST", "GLOO_BCAST"));
  EXPECT_THAT(words({.kind = Kind::alltoall}), ElementsAre("ALLTOALL", "GLOO_ALLTOALL"));
  EXPECT_THAT(words({.kind = Kind::reducescatter}),
              ElementsAre("REDUCESCATTER", "GLOO_REDUCESCATTER"));
  EXPECT_THAT(words({.kind = Kind::message}), ElementsAre("MESSAGE", "GLOO_MESSAGE"));
  EXPECT_THAT(words({.op = ReduceOp::adasum}), ElementsAre("ADASUM", "GLOO_ADASUM_ALLREDUCE"));
  EXPECT_THAT(words({.kind = Kind::allreduce}, Mover::mpi),
              ElementsAre("ALLREDUCE", "MPI_ALLREDUCE"));
  EXPECT_THAT(words({.kind = Kind::broadcast}, Mover::mpi), ElementsAre("BROADCAST", "MPI_BCAST"));
  EXPECT_THAT(words({.kind = Kind::allreduce}, Mover::hierarchical),
              ElementsAre("ALLREDUCE", "NCCL_HIERARCHICAL_ALLREDUCE"));
  EXPECT_THAT(words({.kind = Kind::alltoall}, Mover::ipc), ElementsAre("ALLTOALL", "IPC_ALLTOALL"));
}

TEST_F(TimelineTest, AgreementIsNamedByKindAlsoOfWhatMovesNothing) {
  Timeline timeline = begun();
  int at = 0;
  for (const OperationKind kind :
       {OperationKind::barrier, OperationKind::join, OperationKind::add_process_set}) {
    Event ready = event(Event::Type::ready, ++at, std::string(name_of(kind)));
    ready.operation.kind = kind;
    take(timeline, ready);
  }
  EXPECT_THAT(events_in(path()),
              ElementsAre("B NEGOTIATE_BARRIER 1 at 1", "X 3 1 at 1", "B NEGOTIATE_JOIN 2 at 2",
                          "X 3 2 at 2", "B NEGOTIATE_ADD_PROCESS_SET 3 at 3", "X 3 3 at 3"));
}

TEST_F(TimelineTest, MovingHasTheBatchTheBytesTheWayAndTheAlgorithm) {
  Timeline timeline = begun();
  take(timeline, event(Event::Type::agreed, 1));
  const auto arguments_of = [&](const Route& route) {
    Event moving = activity(Event::Activity::data, 2);
    moving.batch = 7;
    moving.route = route;
    take(timeline, moving);
    return json::parse(text_of(path())).back()["args"];
  };
  EXPECT_EQ(arguments_of({.algorithm = Algorithm::ring}),
            json({{"batch", 7}, {"bytes", 32}, {"way", "executor"}, {"algorithm", "ring"}}));
  EXPECT_EQ(arguments_of({.way = Way::one_shot}),
            json({{"batch", 7}, {"bytes", 32}, {"way", "one-shot"}}));
  EXPECT_EQ(arguments_of({.mover = Mover::mpi}), json({{"batch", 7}, {"bytes", 32}}));
}

TEST_F(TimelineTest, IsValidAfterEveryEvent) {
  Timeline timeline = begun(true);
  for (int i = 0; i < 200; ++i) {
    const std::string name = fmt::format("tensor {}", i % 7);
    take(timeline, event(static_cast<Event::Type>(i % 6), i, name));
    EXPECT_TRUE(json::accept(text_of(path()))) << i;
    EXPECT_EQ(text_of(path()).back(), ']');
  }
}

TEST_F(TimelineTest, EachNameIsAProcessAndTheSameNameInAnotherGroupAnother) {
  Timeline timeline = begun();
  for (const std::string name : {"a", "b", "a"}) take(timeline, event(Event::Type::ready, 1, name));
  Event elsewhere = event(Event::Type::ready, 2, "a");
  elsewhere.group = 1;
  take(timeline, elsewhere);
  auto names = metadata_in(path(), "process_name");
  EXPECT_EQ(names.size(), 4);  // with process 0
  EXPECT_EQ(names[1]["name"], "a");
  EXPECT_EQ(names[2]["name"], "b");
  EXPECT_EQ(names[3]["name"], "a");
  EXPECT_EQ(metadata_in(path(), "process_sort_index").size(), 4);
}

// Or a job whose names never come back would need ever more memory.
TEST_F(TimelineTest, NamesThatAreNotInUseAreForgottenWhenThereAreVeryMany) {
  Timeline timeline = begun();
  take(timeline, event(Event::Type::ready, 0, "pending"));
  std::vector<Event> passing;
  for (int i = 0; i < (1 << 16); ++i) {
    passing.push_back(event(Event::Type::ready, 1, fmt::format("noname.{}", i)));
    passing.push_back(event(Event::Type::done, 2, fmt::format("noname.{}", i)));
  }
  timeline.take(passing);
  take(timeline, event(Event::Type::done, 3, "pending"));
  take(timeline, event(Event::Type::ready, 4, "noname.0"));
  const std::string text = text_of(path());
  const auto announced = [&](const std::string& name) {
    const std::string line = R"("args":{"name":")" + name + R"("}})";
    int count = 0;
    for (size_t at = text.find(line); at != text.npos; at = text.find(line, at + 1)) ++count;
    return count;
  };
  EXPECT_EQ(announced("pending"), 1);
  EXPECT_EQ(announced("noname.0"), 2);
}

TEST_F(TimelineTest, NamesMayBeAnyBytes) {
  Timeline timeline = begun();
  take(timeline, event(Event::Type::ready, 1, "a\"b\\c\n\x01\xff"));
  take(timeline, event(Event::Type::ready, 1, "gr\xc3\xbc\xc3\x9f"));
  auto names = metadata_in(path(), "process_name");
  EXPECT_EQ(names[1]["name"], "a\"b\\c\n\x01\xef\xbf\xbd");
  EXPECT_EQ(names[2]["name"], "gr\xc3\xbc\xc3\x9f");
}

TEST_F(TimelineTest, AnOperationThatFailsEndsWithItsAgreement) {
  Timeline timeline = begun();
  take(timeline, event(Event::Type::ready, 1));
  take(timeline, event(Event::Type::done, 4));
  EXPECT_THAT(events_in(path()), ElementsAre("B NEGOTIATE_ALLREDUCE 1 at 1", "X 3 1 at 1",
                                             "E NEGOTIATE_ALLREDUCE 1 at 4"));
}

TEST_F(TimelineTest, WhatBeganBeforeTheTraceIsLeftOutUntilItBeginsSomething) {
  Timeline timeline = begun();
  take(timeline, activity(Event::Activity::data, 1));
  take(timeline, event(Event::Type::done, 2));
  EXPECT_THAT(events_in(path()), IsEmpty());
  take(timeline, event(Event::Type::agreed, 3));
  take(timeline, event(Event::Type::done, 4));
  EXPECT_THAT(events_in(path()), ElementsAre("B ALLREDUCE 1 at 3", "E ALLREDUCE 1 at 4"));
}

TEST_F(TimelineTest, LostEventsAreSaidAndWhatTheyWouldHaveEndedEndsBeforeTheNextBegins) {
  Timeline timeline = begun();
  take(timeline, event(Event::Type::ready, 1));
  take(timeline, {.type = Event::Type::lost, .time = kStart + 2us, .count = 17});
  EXPECT_EQ(json::parse(text_of(path())).back()["args"]["count"], 17);
  take(timeline, event(Event::Type::ready, 3));
  EXPECT_THAT(events_in(path()), ElementsAre("B NEGOTIATE_ALLREDUCE 1 at 1", "X 3 1 at 1",
                                             "i EVENTS_LOST at 2", "E NEGOTIATE_ALLREDUCE 1 at 3",
                                             "B NEGOTIATE_ALLREDUCE 1 at 3", "X 3 1 at 3"));
}

TEST_F(TimelineTest, CyclesAreMarkedOnlyWhenAskedFor) {
  {
    Timeline without = begun(false);
    take(without, event(Event::Type::cycle, 1));
    EXPECT_THAT(events_in(path()), IsEmpty());
  }
  Timeline with = begun(true);
  take(with, event(Event::Type::cycle, 2));
  EXPECT_THAT(events_in(path()), ElementsAre("i CYCLE_START at 2"));
  EXPECT_EQ(json::parse(text_of(path())).back()["s"], "g");
}

TEST_F(TimelineTest, BeginningLeavesNothingOfAFormerTrace) {
  {
    Timeline former = begun();
    for (int i = 0; i < 50; ++i) take(former, event(Event::Type::ready, i));
  }
  const Timeline next = begun();
  EXPECT_THAT(events_in(path()), IsEmpty());
}

TEST_F(TimelineTest, AFileThatCannotBeWrittenIsRefusedWithTheReason) {
  const auto refusal = [](const std::string& where) -> std::string {
    try {
      Timeline timeline(where, false);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::invalid_argument);
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal(path("no/such/folder/t.json")), HasSubstr("No such file or directory"));
  EXPECT_THAT(refusal("/dev/null"), HasSubstr("not a regular file"));
  EXPECT_THAT(refusal(path("")), HasSubstr("Is a directory"));
  EXPECT_THAT(refusal(""), HasSubstr("No such file or directory"));
}

TEST_F(TimelineTest, AFullDiskEndsTheTraceAndLeavesItValid) {
  Timeline timeline = begun();
  take(timeline, event(Event::Type::ready, 1));
  const auto before = events_in(path());
  struct rlimit former {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &former), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit tight = former;
  tight.rlim_cur = std::filesystem::file_size(path()) + 10;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &tight), 0);
  take(timeline, event(Event::Type::agreed, 2));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &former), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(events_in(path()), before);
  take(timeline, event(Event::Type::done, 3));  // there is room again, but a part is missing
  EXPECT_EQ(events_in(path()), before);
}

TEST(TimelinePath, OtherRanksWriteBesideRankZero) {
  EXPECT_EQ(timeline_path("a/trace.json", 0), "a/trace.json");
  EXPECT_EQ(timeline_path("a/trace.json", 1), "a/trace.rank1.json");
  EXPECT_EQ(timeline_path("trace", 12), "trace.rank12");
  EXPECT_EQ(timeline_path("a.b/trace", 2), "a.b/trace.rank2");
  EXPECT_EQ(timeline_path("/t.x.json", 3), "/t.x.rank3.json");
}

}  // namespace
}  // namespace hvd
