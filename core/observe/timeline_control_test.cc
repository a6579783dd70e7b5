// One job, several trace files.
#include "core/observe/timeline_control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/base/error.h"

namespace hvd {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::IsEmpty;

class TimelineControlTest : public testing::Test {
 protected:
  TimelineControlTest() { std::filesystem::create_directories(folder_); }
  ~TimelineControlTest() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  void submit(const std::string& name) {
    observer_.record({.type = Event::Type::ready, .name = name});
  }
  /// What the tensors in a trace are called.
  std::vector<std::string> names(const std::string& file) const {
    std::vector<std::string> found;
    for (const json& event : json::parse(std::ifstream(path(file))))
      if (event["ph"] == "M" && event["args"].contains("name"))
        found.push_back(event["args"]["name"]);
    return found;
  }

  Observer observer_;
  const SystemClock clock_;
  TimelineControl control_{observer_, clock_};

 private:
  const std::string folder_ = testing::TempDir() + "/timelines." + std::to_string(::getpid());
};

TEST_F(TimelineControlTest, EventsGoOnlyToTheFileThatIsActive) {
  submit("before");
  control_.start(path("1.json"), false);
  submit("first");
  control_.start(path("2.json"), false);
  submit("second");
  control_.stop();
  submit("after");
  EXPECT_THAT(names("1.json"), ElementsAre("first"));
  EXPECT_THAT(names("2.json"), ElementsAre("second"));
}

TEST_F(TimelineControlTest, AFileMayBeBegunAnew) {
  control_.start(path("1.json"), false);
  submit("a tensor with a long name");
  control_.start(path("1.json"), false);
  submit("b");
  control_.stop();
  EXPECT_THAT(names("1.json"), ElementsAre("b"));
}

TEST_F(TimelineControlTest, AFileThatCannotBeWrittenLeavesTheFormerOneActive) {
  control_.start(path("1.json"), false);
  EXPECT_THROW(control_.start(path("none/2.json"), false), Error);
  submit("first");
  control_.stop();
  EXPECT_THAT(names("1.json"), ElementsAre("first"));
}

TEST_F(TimelineControlTest, NothingIsRecordedAfterTheStopAndStoppingTwiceIsNoMistake) {
  control_.stop();
  control_.start(path("1.json"), false);
  EXPECT_TRUE(observer_.listening());
  control_.stop();
  control_.stop();
  EXPECT_FALSE(observer_.listening());
  EXPECT_THAT(names("1.json"), IsEmpty());
}

TEST_F(TimelineControlTest, TheEndOfAJobCompletesTheTrace) {
  {
    TimelineControl control(observer_, clock_);
    control.start(path("1.json"), false);
    submit("last");
  }
  EXPECT_THAT(names("1.json"), ElementsAre("last"));
}

}  // namespace
}  // namespace hvd
