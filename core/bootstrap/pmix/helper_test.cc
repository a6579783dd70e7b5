#include "core/bootstrap/pmix/helper.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>

#include "core/base/error.h"
#include "core/base/syscall_testing.h"
#include "core/transport/process_watch.h"

namespace hvd::pmix {
namespace {

using ::testing::HasSubstr;

const std::vector<std::string> kLibrary{HVD_PMIX_STAND_IN};

BroadcastRequest look_up(const std::string& name) {
  return {.name = name,
          .text = "",
          .is_rank_0 = false,
          .rank_0 = 0,
          .launcher = "nobody",
          .deadline = StartDeadline(std::chrono::seconds(name == "process" ? 30 : 0))};
}

std::string helper() { return publish_by_helper(kLibrary, look_up("process")); }

Error error_of(const std::string& name, const std::vector<std::string>& library = kLibrary) {
  try {
    publish_by_helper(library, look_up(name));
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return Error(Code::ok, "");
}

TEST(PmixHelper, IsAnotherProcessAndTheSameForTheNextRequest) {
  const std::string first = helper();
  EXPECT_NE(first, std::to_string(::getpid()));
  EXPECT_EQ(helper(), first);
}

TEST(PmixHelper, HasWhatRank0GivesIt) {
  BroadcastRequest request = look_up("process");
  request.is_rank_0 = true;
  request.text = "here";
  EXPECT_EQ(publish_by_helper(kLibrary, request), "here");
}

/// As with a persistent PMIx server, to which each job publishes under a name of its own.
TEST(PmixSession, KeepsTwoJobsOfOneDaemonApart) {
  const Library library = load_library(kLibrary);
  const Session one(library), other(library);
  BroadcastRequest request = look_up("line");
  const auto publish = [&](const Session& from, const std::string& text) {
    request.is_rank_0 = true;
    request.text = text;
    from.by_publishing(request);
    request.is_rank_0 = false;
  };
  publish(one, "of the one");
  publish(other, "of the other");
  EXPECT_EQ(one.by_publishing(request), "of the one");
  EXPECT_EQ(other.by_publishing(request), "of the other");
}

TEST(PmixHelper, SaysThatRankZeroIsMissing) {
  const std::string before = helper();
  const Error error = error_of("absent");
  EXPECT_EQ(error.code(), Code::timed_out);
  EXPECT_THAT(error.what(), HasSubstr("rank 0 has not called init"));
  EXPECT_EQ(helper(), before);
}

TEST(PmixHelper, ThatDoesNotAnswerIsReplaced) {
  const std::string before = helper();
  const Error error = error_of("silence");
  EXPECT_EQ(error.code(), Code::timed_out);
  EXPECT_THAT(error.what(), HasSubstr("has not delivered the address of rank 0 within 0 s"));
  EXPECT_NE(helper(), before);
}

TEST(PmixHelper, ThatDiesIsReplaced) {
  const std::string before = helper();
  EXPECT_THAT(error_of("death").what(), HasSubstr("ended unexpectedly"));
  EXPECT_NE(helper(), before);
}

/// Whether a pipe reaches its end although a helper runs that was forked while the pipe was open,
/// also under the descriptor numbers `standard`.
bool is_let_go(const std::vector<int>& standard) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) return false;
  std::vector<int> saved;
  for (const int fd : standard) {
    saved.push_back(::fcntl(fd, F_DUPFD_CLOEXEC, 100));
    ::dup2(ends[1], fd);
  }
  helper();
  for (size_t i = 0; i < standard.size(); ++i) {
    ::dup2(saved[i], standard[i]);
    ::close(saved[i]);
  }
  ::close(ends[1]);
  pollfd reader{ends[0], POLLIN, 0};
  const bool ended = ::poll(&reader, 1, 10000) == 1 && (reader.revents & POLLHUP) != 0;
  ::close(ends[0]);
  return ended;
}

TEST(PmixHelper, HoldsNothingOfTheProgramOpen) {
  error_of("death");  // the next one is forked while the pipe is there
  EXPECT_TRUE(is_let_go({STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}));
}

TEST(PmixHelper, HoldsNothingOpenOnLinux418) {
  for (const int error : {ENOSYS, EPERM}) {
    // The forked child has a helper of its own.
    const auto let_go =
        hvd::test::without(hvd::test::newer_than_linux_4_18(error), [] { return is_let_go({}); });
    if (!let_go) GTEST_SKIP() << "seccomp filters are not allowed here";
    EXPECT_TRUE(*let_go) << error;
  }
}

/// Also if that process exits without cleaning up. A forked child has a helper of its own.
TEST(PmixHelper, EndsWithItsProcess) {
  const std::string of_the_parent = helper();
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string mine = helper();
    static_cast<void>(::write(ends[1], mine.data(), mine.size()) < 0);
    ::_exit(0);
  }
  ::close(ends[1]);
  std::array<char, 32> room{};
  ASSERT_GT(::read(ends[0], room.data(), room.size() - 1), 0);
  ::close(ends[0]);
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_NE(room.data(), of_the_parent);
  EXPECT_EQ(helper(), of_the_parent);
  // Readable once the process has ended, even if it has not been reaped.
  FileDescriptor process;
  try {
    process = open_process(static_cast<pid_t>(std::stol(room.data())));
  } catch (const Error&) {
    return;  // it has ended and been reaped
  }
  pollfd ended{process.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&ended, 1, 10000), 1);
}

TEST(PmixHelper, TellsThatThereIsNoLibrary) {
  error_of("death");  // the next one has to load it
  const Error error = error_of("process", {"/nowhere/libpmix.so.2"});
  EXPECT_EQ(error.code(), Code::invalid_argument);
  EXPECT_THAT(error.what(), HasSubstr("/nowhere/libpmix.so.2"));
}

}  // namespace
}  // namespace hvd::pmix
