#include "core/transport/process_watch.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/error.h"
#include "core/base/process_tree.h"
#include "core/base/syscall_testing.h"
#include "core/transport/epoll_waiter.h"
#include "core/transport/process_poll.h"
#include "core/transport/socket.h"

namespace hvd {
namespace {

using std::chrono_literals::operator""s;

TimePoint soon() { return std::chrono::steady_clock::now() + 60s; }

/// Returns what is wrong when a child is watched, killed and reaped.
std::string problem_of_watching_a_child() {
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // if watching it throws
    ::pause();
    ::_exit(0);
  }
  const FileDescriptor process = open_process(child);
  if (has_ended(process)) return "ended while the process runs";
  ::kill(child, SIGKILL);
  pollfd ended{process.get(), POLLIN, 0};
  if (::poll(&ended, 1, 60'000) != 1) return "the end before the reaping was not reported";
  ::waitpid(child, nullptr, 0);
  if (!has_ended(process)) return "runs again after the reaping";
  try {
    open_process(child);
  } catch (const Error& error) {
    const std::string text = error.what();
    return text.ends_with("No such process") ? "" : text;
  }
  return "a process that is gone can be watched";
}

/// Returns whether it is well under these conditions, and prints otherwise why not.
std::optional<bool> without(const test::RefusedCalls& calls, std::string (*problem_of)()) {
  return hvd::test::without(calls, [&] {
    const std::string problem = problem_of();
    if (!problem.empty()) std::cerr << problem << std::endl;
    return problem.empty();
  });
}

TEST(ProcessWatch, ShowsWhetherAProcessIsStopped) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (true) ::pause();
  }
  const FileDescriptor process = open_process(child);
  ::kill(child, SIGSTOP);
  ::waitpid(child, nullptr, WUNTRACED);
  EXPECT_EQ(state_of_process(process), 'T');
  ::kill(child, SIGCONT);
  ::waitpid(child, nullptr, WCONTINUED);
  EXPECT_NE(state_of_process(process).value_or('T'), 'T');
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(state_of_process(process), std::nullopt);
}

TEST(ProcessWatch, ShowsWhetherAProcessHasReplacedItself) {
  constexpr const char* kFile = "process-watch-test";
  FileDescriptor file(::memfd_create(kFile, MFD_CLOEXEC), AtFork::keep);
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::raise(SIGSTOP);
    ::execl("/bin/sleep", "sleep", "1000", nullptr);
  }
  const FileDescriptor process = open_process(child);
  ::waitpid(child, nullptr, WUNTRACED);
  EXPECT_FALSE(has_replaced_itself(process, kFile));
  ::kill(child, SIGCONT);
  const TimePoint end = soon();
  while (!has_replaced_itself(process, kFile) && std::chrono::steady_clock::now() < end)
    ::sched_yield();
  EXPECT_TRUE(has_replaced_itself(process, kFile));
  file.reset();
  EXPECT_FALSE(has_replaced_itself(process, kFile)) << "it might never have had the file";
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(has_replaced_itself(process, kFile));
}

TEST(ProcessWatch, TellsWhenAnotherProcessHasEnded) {
  EXPECT_EQ(problem_of_watching_a_child(), "");
}

class ProcessWatchOnLinux418 : public ::testing::TestWithParam<int> {
 protected:
  const hvd::test::RefusedCalls refused_ = hvd::test::newer_than_linux_4_18(GetParam());
};

INSTANTIATE_TEST_SUITE_P(Errors, ProcessWatchOnLinux418, ::testing::Values(ENOSYS, EPERM, EACCES));

TEST_P(ProcessWatchOnLinux418, TellsWhenAnotherProcessHasEnded) {
  const auto well = without(refused_, problem_of_watching_a_child);
  if (!well) GTEST_SKIP() << "seccomp filters are not allowed here";
  EXPECT_TRUE(*well);
}

/// A child passes its own descriptor, forks a child that outlives it, and is killed: returns
/// whether the waiter reports it.
bool is_told_of_a_killed_child() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) return false;
  const FileDescriptor ours(ends[0]), theirs(ends[1], AtFork::keep);
  std::array<std::byte, 1> dot{};
  const pid_t child = ::fork();
  if (child == 0) {
    open_own_process();  // as in the previous generation
    const FileDescriptor process = open_own_process();
    if (::fork() == 0) {
      static_cast<void>(::read(theirs.get(), dot.data(), 1));  // until the test ends
      ::_exit(0);
    }
    send_with_descriptors(theirs.get(), as_bytes("."), std::array{process.get()}, soon(), "test");
    ::pause();
  }
  const auto taken = receive_with_descriptors(ours.get(), dot, soon(), "test");
  const FileDescriptor& process = taken.at(0);
  const bool was_alive = !has_ended(process);
  EpollWaiter waiter;
  constexpr uint64_t kTag = 7;
  waiter.watch(process.get(), kTag);
  ::kill(child, SIGKILL);
  std::vector<uint64_t> ready;
  waiter.wait(soon(), ready);
  ::waitpid(child, nullptr, 0);
  return was_alive && ready == std::vector{kTag} && has_ended(process);
}

TEST(ProcessWatch, OneThatItGivesAwayTellsOfItsOwnEnd) { EXPECT_TRUE(is_told_of_a_killed_child()); }

TEST_P(ProcessWatchOnLinux418, TellsOfItsOwnEnd) {
  const auto told = hvd::test::without(refused_, is_told_of_a_killed_child);
  if (!told) GTEST_SKIP() << "seccomp filters are not allowed here";
  EXPECT_TRUE(*told);
}

/// Returns the number of threads of this process.
long thread_count() {
  const auto numbers = status_numbers(::getpid(), "Threads");
  return numbers.empty() ? 0 : numbers[0];
}

/// Waits until this process has `count` threads. Returns whether it has.
bool comes_to(long count) {
  for (const TimePoint end = soon(); thread_count() != count;) {
    if (std::chrono::steady_clock::now() > end) return false;
    ::sched_yield();
  }
  return true;
}

TEST(ProcessPoll, LeavesNoThreadWhenItsDescriptorIsClosed) {
  const long before = thread_count();
  FileDescriptor process = poll_process(::getppid());
  EXPECT_FALSE(has_ended(process));
  EXPECT_TRUE(comes_to(before + 1));
  process.reset();
  EXPECT_TRUE(comes_to(before));
}

TEST(ProcessPoll, KnowsARunningProcessByItsStateAndThreads) {
  const auto stat = [](const std::string& name, char state, int threads) {
    return "12 (" + name + ") " + state + " 7 12 12 0 -1 4 0 0 0 0 1 2 3 4 20 0 " +
           std::to_string(threads) + " 0 555\n";
  };
  EXPECT_TRUE(shows_running(stat("a", 'S', 1)));
  EXPECT_TRUE(shows_running(stat("a", 'T', 1)));
  EXPECT_TRUE(shows_running(stat("a", 'Z', 2))) << "only the first thread has ended";
  EXPECT_TRUE(shows_running(stat("a) Z 1 (", 'R', 1)));
  EXPECT_FALSE(shows_running(stat("a", 'Z', 1)));
  EXPECT_FALSE(shows_running(stat(") R 1 (", 'X', 1)));
  EXPECT_TRUE(shows_running("12 (a"));
}

/// Runs `test` as the first process of a PID namespace whose /proc is that of the outer one.
/// Returns whether it returned true; nullopt if namespaces are not allowed.
std::optional<bool> below_a_foreign_proc(bool (*test)()) {
  constexpr int kNo = 1, kNotAllowed = 77;
  const pid_t outer = ::fork();
  if (outer == 0) {
    if (::unshare(CLONE_NEWPID) != 0) ::_exit(kNotAllowed);
    const pid_t inner = ::fork();
    if (inner == 0) ::_exit(test() ? 0 : kNo);
    int status = kNo;
    ::waitpid(inner, &status, 0);
    ::_exit(status == 0 ? 0 : kNo);
  }
  int status = 0;
  ::waitpid(outer, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNotAllowed) return std::nullopt;
  return status == 0;
}

TEST(ProcessPoll, NamesBothRemediesWithoutAUsableProc) {
  const auto said = below_a_foreign_proc([] {
    try {
      poll_process(::getpid());
    } catch (const Error& error) {
      const std::string text = error.what();
      return text.find("Linux 5.3") != text.npos && text.find("mount -t proc") != text.npos;
    }
    return false;
  });
  if (!said) GTEST_SKIP() << "namespaces are not allowed here";
  EXPECT_TRUE(*said);
}

}  // namespace
}  // namespace hvd
