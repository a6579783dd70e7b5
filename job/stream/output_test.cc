#include "job/stream/output.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "core/base/error.h"

namespace hvd::job {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A pipe whose writing end stands for the user's console.
class Screen {
 public:
  Screen() {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    read_ = FileDescriptor(ends[0]);
    write_ = FileDescriptor(ends[1]);
  }
  int fd() const { return write_.get(); }
  std::string text() const {
    std::string result(1 << 20, '\0');
    const ssize_t size = read(read_.get(), result.data(), result.size());
    result.resize(static_cast<size_t>(std::max<ssize_t>(size, 0)));
    return result;
  }
  void stop_reading() { read_.reset(); }

 private:
  FileDescriptor read_, write_;
};

class OutputTest : public ::testing::Test {
 protected:
  std::string out() {
    output.console(Stream::out).pump();
    return out_screen.text();
  }
  std::string err() {
    output.console(Stream::err).pump();
    return err_screen.text();
  }
  Screen out_screen, err_screen;
  TimePoint now{};
  Output output{{.ranks = 2}, out_screen.fd(), err_screen.fd()};
};

TEST_F(OutputTest, PutsRankAndStreamBeforeLines) {
  output.received(0, Stream::out, "a\n", now);
  output.received(1, Stream::err, "b\n", now);
  EXPECT_EQ(out(), "[0]<stdout>:a\n");
  EXPECT_EQ(err(), "[1]<stderr>:b\n");
}

TEST_F(OutputTest, ShowsAnUnfinishedLineAfterSilence) {
  output.received(0, Stream::out, "name? ", now);
  EXPECT_EQ(output.deadline(), now + Output::kSilence);
  output.pass(now + Output::kSilence - 1ms);
  EXPECT_EQ(out(), "");
  output.pass(now + Output::kSilence);
  EXPECT_EQ(out(), "[0]<stdout>:name? ");
  EXPECT_EQ(output.deadline(), std::nullopt);
}

TEST_F(OutputTest, MoreOfALineBeginsTheSilenceAnew) {
  output.received(0, Stream::out, "a", now);
  output.received(0, Stream::out, "b", now + 100ms);
  EXPECT_EQ(output.deadline(), now + 100ms + Output::kSilence);
  output.received(0, Stream::out, "\n", now + 150ms);
  EXPECT_EQ(output.deadline(), std::nullopt);
}

TEST_F(OutputTest, KeepsBackTheErrorsOfAHeldRankInTheirOrder) {
  output.hold(0);
  output.received(0, Stream::err, "1\n", now);
  output.received(0, Stream::err, "2\n", now);
  output.received(1, Stream::err, "other\n", now);
  output.received(0, Stream::out, "result\n", now);
  EXPECT_EQ(out(), "[0]<stdout>:result\n");
  EXPECT_EQ(err(), "[1]<stderr>:other\n");
  EXPECT_THAT(output.tail(0), ElementsAre("1", "2", "result"));
  output.release(0);
  EXPECT_EQ(err(), "[0]<stderr>:1\n[0]<stderr>:2\n");
}

TEST_F(OutputTest, TheLaunchersWordsAreLinesOfTheirOwn) {
  output.received(0, Stream::err, "half", now);
  output.pass(now + Output::kSilence);
  output.say("told");
  EXPECT_EQ(err(), "[0]<stderr>:half\nhorovodrun: told\n");
}

TEST_F(OutputTest, AConsoleThatTakesNothingMakesItFullButNotBlocked) {
  const std::string line(64 * 1024, 'x');
  for (int i = 0; i < 100; ++i) output.received(0, Stream::out, line + "\n", now);
  output.console(Stream::out).pump();
  EXPECT_TRUE(output.is_full());
  size_t bytes = 0;
  for (std::string text = out(); !text.empty(); text = out()) bytes += text.size();
  EXPECT_FALSE(output.is_full());
  EXPECT_EQ(bytes, 100 * (std::string("[0]<stdout>:").size() + line.size() + 1));
}

TEST_F(OutputTest, AReaderThatIsGoneTakesEverything) {
  signal(SIGPIPE, SIG_IGN);
  out_screen.stop_reading();
  output.received(0, Stream::out, "lost\n", now);
  output.console(Stream::out).drain();
  EXPECT_FALSE(output.console(Stream::out).has_waiting());
}

/// A folder for the output of two ranks.
class OutputFiles : public ::testing::Test {
 protected:
  OutputFiles() {
    for (const char* rank : {"rank.0", "rank.1"})
      std::filesystem::create_directories(std::filesystem::path(folder) / rank);
  }
  ~OutputFiles() override { std::filesystem::remove_all(folder); }
  std::string path(const char* name) const { return folder + "/" + name; }
  OutputOptions options() const { return {.ranks = 2, .folder = folder}; }

  std::string folder = ::testing::TempDir() + "output-" + std::to_string(getpid());
};

TEST_F(OutputFiles, ThatCannotBeWrittenAreTalkedAboutOnce) {
  for (const char* name : {"rank.0/stdout", "rank.1/stdout"})
    std::filesystem::create_symlink("/dev/full", path(name));
  Screen out_screen, err_screen;
  Output output(options(), out_screen.fd(), err_screen.fd());
  for (const int rank : {0, 0, 1}) output.received(rank, Stream::out, "line\n", TimePoint());
  output.console(Stream::err).pump();
  EXPECT_EQ(err_screen.text(),
            "horovodrun: --output-filename: the stdout of rank 0 cannot be written to its file any "
            "more: No space left on device; other files may be incomplete too\n");
}

TEST_F(OutputFiles, ThatArePipesAreRefusedInsteadOfWaitedFor) {
  ASSERT_EQ(mkfifo(path("rank.1/stderr").c_str(), 0600), 0);
  const auto refused = [&] {
    try {
      const Output output(options(), STDOUT_FILENO, STDERR_FILENO);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("taken");
  };
  EXPECT_THAT(refused(), HasSubstr("rank.1/stderr cannot be written: it is a pipe or a socket"));
  const int reader = open(path("rank.1/stderr").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  EXPECT_THAT(refused(), HasSubstr("it is a pipe or a socket"));
  close(reader);
}

TEST(OutputFolder, ThatCannotBeMadeIsRefusedByName) {
  try {
    Output output({.ranks = 1, .folder = "/proc/none"}, STDOUT_FILENO, STDERR_FILENO);
    FAIL() << "made";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("--output-filename: /proc/none/rank.0 cannot be made"));
  }
}

}  // namespace
}  // namespace hvd::job
