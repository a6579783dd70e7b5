#include "core/transport/process_watch.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/error.h"
#include "core/base/syscall_testing.h"
#include "core/transport/epoll_waiter.h"
#include "core/transport/socket.h"

namespace hvd {
namespace {

using std::chrono_literals::operator""s;

TimePoint soon() { return std::chrono::steady_clock::now() + 10s; }

TEST(ProcessWatch, TellsWhenAnotherProcessHasEnded) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  const FileDescriptor process = open_process(child);
  EXPECT_FALSE(has_ended(process));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(has_ended(process));
  EXPECT_THROW(open_process(child), Error);
}

/// A child gives us its own descriptor, has a child that outlives it, and is killed: does the
/// waiter of a driver hear of it?
bool is_told_of_a_killed_child() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) return false;
  const FileDescriptor ours(ends[0]), theirs(ends[1], AtFork::keep);
  std::array<std::byte, 1> dot{};
  const pid_t child = ::fork();
  if (child == 0) {
    open_own_process();  // as in the generation before
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

TEST(ProcessWatch, TellsOfItsOwnEndWhereTheKernelHasNoDescriptorsOfProcesses) {
  const auto told = hvd::testing::without(SYS_pidfd_open, is_told_of_a_killed_child);
  if (!told) GTEST_SKIP() << "seccomp filters are not allowed here";
  EXPECT_TRUE(*told);
}

TEST(ProcessWatch, SaysWhatTheKernelLacks) {
  const auto said = hvd::testing::without(SYS_pidfd_open, [] {
    try {
      open_process(::getppid());
    } catch (const Error& error) {
      return std::string(error.what()).find("Linux 5.3") != std::string::npos;
    }
    return false;
  });
  if (!said) GTEST_SKIP() << "seccomp filters are not allowed here";
  EXPECT_TRUE(*said);
}

}  // namespace
}  // namespace hvd
