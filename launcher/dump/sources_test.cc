#include "launcher/dump/sources.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "launcher/dump/aside.h"

namespace hvd::launcher {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

TimePoint in(Duration time) { return std::chrono::steady_clock::now() + time; }

class Sources : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "hvd-sources-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    std::ofstream(folder_ / "a.py") << "import os\n    os.read(0, 1)\n";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
};

TEST_F(Sources, AreTheLinesOfTheFrames) {
  const std::string file = (folder_ / "a.py").string();
  std::vector<RankReport> reports{
      {.gil_holder = {{file, 1, "f"}}, .stack = {{file, 2, "g"}}},
      {.stack = {{"<string>", 1, "h"}, {file, 3, "f"}, {file, 2, "g"}}}};
  add_sources(reports, in(60s));
  EXPECT_EQ(reports[0].stack[0].source, "os.read(0, 1)");
  EXPECT_EQ(reports[0].gil_holder[0].source, "import os");
  EXPECT_EQ(reports[1].stack[0].source, "");
  EXPECT_EQ(reports[1].stack[1].source, "");
  EXPECT_EQ(reports[1].stack[2].source, "os.read(0, 1)");
}

TEST_F(Sources, DoNotBlockUsIfAFileDoes) {
  const std::string file = (folder_ / "a.py").string(), blocks = (folder_ / "fifo").string();
  ASSERT_EQ(mkfifo(blocks.c_str(), 0600), 0);
  std::vector<RankReport> reports{{.stack = {{file, 1, "f"}, {blocks, 1, "g"}, {file, 2, "h"}}}};
  add_sources(reports, in(500ms));
  EXPECT_EQ(reports[0].stack[1].source, "");
  EXPECT_EQ(reports[0].stack[2].source, "");
}

TEST(OutputOf, IsWhatTheChildWrites) {
  const auto text =
      output_of([] { [[maybe_unused]] auto n = write(STDOUT_FILENO, "abc", 3); }, in(60s));
  EXPECT_EQ(text, "abc");
  EXPECT_EQ(output_of([] {}, in(60s)), "");
  EXPECT_EQ(output_of([] { pause(); }, in(50ms)), "");
}

}  // namespace
}  // namespace hvd::launcher
