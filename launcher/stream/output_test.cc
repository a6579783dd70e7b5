#include "launcher/stream/output.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/base/error.h"

namespace hvd::launcher {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A pipe whose writing end replaces the user's console.
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

/// A worker and its rank, in a job of several workers on one host.
constexpr WorkerId worker(int rank) { return {.host = 0, .slot = rank}; }
const Assignment kTwoWorkers = assign_ranks({worker(0), worker(1)}, 0);

class OutputTest : public ::testing::Test {
 protected:
  OutputTest() { output.assign(kTwoWorkers); }
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
  Output output{{}, out_screen.fd(), err_screen.fd()};
};

TEST_F(OutputTest, PutsRankAndStreamBeforeLines) {
  output.received(worker(0), Stream::out, "a\n", now);
  output.received(worker(1), Stream::err, "b\n", now);
  EXPECT_EQ(out(), "[0]<stdout>:a\n");
  EXPECT_EQ(err(), "[1]<stderr>:b\n");
}

TEST_F(OutputTest, ShowsAnUnfinishedLineAfterSilence) {
  output.received(worker(0), Stream::out, "name? ", now);
  EXPECT_EQ(output.deadline(), now + Output::kSilence);
  output.pass(now + Output::kSilence - 1ms);
  EXPECT_EQ(out(), "");
  output.pass(now + Output::kSilence);
  EXPECT_EQ(out(), "[0]<stdout>:name? ");
  EXPECT_EQ(output.deadline(), std::nullopt);
}

TEST_F(OutputTest, MoreOfALineBeginsTheSilenceAnew) {
  output.received(worker(0), Stream::out, "a", now);
  output.received(worker(0), Stream::out, "b", now + 100ms);
  EXPECT_EQ(output.deadline(), now + 100ms + Output::kSilence);
  output.received(worker(0), Stream::out, "\n", now + 150ms);
  EXPECT_EQ(output.deadline(), std::nullopt);
}

TEST_F(OutputTest, KeepsBackTheErrorsOfAHeldRankInTheirOrder) {
  output.hold(worker(0));
  output.received(worker(0), Stream::err, "1\n", now);
  output.received(worker(0), Stream::err, "2\n", now);
  output.received(worker(1), Stream::err, "other\n", now);
  output.received(worker(0), Stream::out, "result\n", now);
  EXPECT_EQ(out(), "[0]<stdout>:result\n");
  EXPECT_EQ(err(), "[1]<stderr>:other\n");
  EXPECT_THAT(output.tail(worker(0)), ElementsAre("1", "2", "result"));
  output.release(worker(0));
  EXPECT_EQ(err(), "[0]<stderr>:1\n[0]<stderr>:2\n");
}

TEST_F(OutputTest, TheLaunchersWordsAreLinesOfTheirOwn) {
  output.received(worker(0), Stream::err, "half", now);
  output.pass(now + Output::kSilence);
  output.say("told");
  EXPECT_EQ(err(), "[0]<stderr>:half\nhorovodrun: told\n");
}

TEST_F(OutputTest, AConsoleThatTakesNothingMakesItFullButNotBlocked) {
  const std::string line(64 * 1024, 'x');
  for (int i = 0; i < 100; ++i) output.received(worker(0), Stream::out, line + "\n", now);
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
  output.received(worker(0), Stream::out, "lost\n", now);
  output.console(Stream::out).drain();
  EXPECT_FALSE(output.console(Stream::out).has_waiting());
}

TEST_F(OutputTest, ShowsTheRanksOfTheCurrentGeneration) {
  output.received(worker(1), Stream::out, "a\n", now);
  const WorkerId next{.host = 0, .slot = 0, .incarnation = 1};
  output.assign(reassign_ranks(kTwoWorkers, {next, worker(1)}));
  output.received(worker(1), Stream::out, "b\n", now);
  output.received(next, Stream::out, "c\n", now);
  output.received(worker(0), Stream::out, "late\n", now);
  EXPECT_EQ(out(), "[1]<stdout>:a\n[0]<stdout>:b\n[1]<stdout>:c\n[0]<stdout>:late\n");
  EXPECT_THAT(output.tail(next), ElementsAre("c"));
  EXPECT_THAT(output.tail(worker(1)), ElementsAre("a", "b"));
}

TEST_F(OutputTest, AUnfinishedLineOfAnEarlierIncarnationIsNotContinuedByTheNext) {
  output.received(worker(0), Stream::out, "half", now);
  output.pass(now + Output::kSilence);
  const WorkerId next{.host = 0, .slot = 0, .incarnation = 1};
  output.assign(assign_ranks({next, worker(1)}, 1));
  output.received(next, Stream::out, "whole\n", now);
  EXPECT_EQ(out(), "[0]<stdout>:half\n[0]<stdout>:whole\n");
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
  OutputOptions options() const { return {.folder = folder}; }

  std::string folder = ::testing::TempDir() + "output-" + std::to_string(getpid());
};

TEST_F(OutputFiles, ThatCannotBeWrittenAreTalkedAboutOnce) {
  for (const char* name : {"rank.0/stdout", "rank.1/stdout"})
    std::filesystem::create_symlink("/dev/full", path(name));
  Screen out_screen, err_screen;
  Output output(options(), out_screen.fd(), err_screen.fd());
  output.assign(kTwoWorkers);
  for (const int rank : {0, 0, 1})
    output.received(worker(rank), Stream::out, "line\n", TimePoint());
  output.console(Stream::err).pump();
  EXPECT_EQ(err_screen.text(),
            "horovodrun: --output-filename: the stdout of rank 0 can no longer be written to its "
            "file: No space left on device; other files may be incomplete as well\n");
}

TEST_F(OutputFiles, BelongToARankWhicheverWorkerHasIt) {
  Screen out_screen, err_screen;
  Output output(options(), out_screen.fd(), err_screen.fd());
  output.assign(kTwoWorkers);
  output.received(worker(1), Stream::out, "first\n", TimePoint());
  const WorkerId next{.host = 0, .slot = 1, .incarnation = 1};
  output.assign(reassign_ranks(kTwoWorkers, {worker(0), next}));
  output.received(next, Stream::out, "second\n", TimePoint());
  std::ifstream file(path("rank.1/stdout"));
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "first\nsecond\n");
}

TEST_F(OutputFiles, ThatArePipesAreRefusedInsteadOfWaitedFor) {
  ASSERT_EQ(mkfifo(path("rank.1/stderr").c_str(), 0600), 0);
  const auto refused = [&] {
    try {
      Output(options(), STDOUT_FILENO, STDERR_FILENO).assign(kTwoWorkers);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("taken");
  };
  EXPECT_THAT(
      refused(),
      HasSubstr(
          "rank.1/stderr cannot be written: it must be a regular file, found a pipe or a socket"));
  const int reader = open(path("rank.1/stderr").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  EXPECT_THAT(refused(), HasSubstr("found a pipe or a socket"));
  close(reader);
}

TEST(OutputFolder, ThatCannotBeMadeIsRefusedByName) {
  try {
    Output({.folder = "/proc/none"}, STDOUT_FILENO, STDERR_FILENO).assign(kTwoWorkers);
    FAIL() << "made";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("--output-filename: /proc/none/rank.0 cannot be created"));
  }
}

TEST(OutputThatIsLost, IsToldAtTheEnd) {
  const FileDescriptor full(open("/dev/full", O_WRONLY | O_CLOEXEC));
  Screen screen;
  Output output({}, full.get(), screen.fd());
  output.assign(kTwoWorkers);
  EXPECT_TRUE(output.finish());
  output.received(worker(0), Stream::out, "a\n", TimePoint{});
  EXPECT_FALSE(output.finish());
  EXPECT_THAT(screen.text(), HasSubstr("standard output cannot be written: No space left"));
}

}  // namespace
}  // namespace hvd::launcher
