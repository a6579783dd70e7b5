#include "core/group/bootstrap/pmix_helper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>

#include "core/base/error.h"
#include "core/transport/file_descriptor.h"

namespace hvd::pmix {
namespace {

using ::testing::HasSubstr;

const std::vector<std::string> kLibrary{HVD_PMIX_STAND_IN};

Errand look_up(const std::string& name) {
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

TEST(PmixHelper, IsAnotherProcessAndTheSameForTheNextErrand) {
  const std::string first = helper();
  EXPECT_NE(first, std::to_string(::getpid()));
  EXPECT_EQ(helper(), first);
}

TEST(PmixHelper, HasWhatRank0GivesIt) {
  Errand errand = look_up("process");
  errand.is_rank_0 = true;
  errand.text = "here";
  EXPECT_EQ(publish_by_helper(kLibrary, errand), "here");
}

TEST(PmixHelper, SaysWhatHasNotCome) {
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
  EXPECT_THAT(error.what(), HasSubstr("has not introduced the ranks within 0 s"));
  EXPECT_NE(helper(), before);
}

TEST(PmixHelper, ThatDiesIsReplaced) {
  const std::string before = helper();
  EXPECT_THAT(error_of("death").what(), HasSubstr("ended without a word"));
  EXPECT_NE(helper(), before);
}

/// Whoever reads from a pipe of the program waits for its end.
TEST(PmixHelper, HoldsNothingOfTheProgramOpen) {
  error_of("death");  // the next one is forked while the pipe is there
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  helper();
  ::close(ends[1]);
  pollfd reader{ends[0], POLLIN, 0};
  EXPECT_EQ(::poll(&reader, 1, 10000), 1);
  EXPECT_NE(reader.revents & POLLHUP, 0);
  ::close(ends[0]);
}

/// By whatever way that one goes. A forked process has one of its own.
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
  // Readable once the process has ended, also where nobody has collected it.
  const FileDescriptor process(
      static_cast<int>(::syscall(SYS_pidfd_open, std::stol(room.data()), 0)));
  if (!process) return;  // it has ended, and been collected
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
