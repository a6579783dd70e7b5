#include "core/bootstrap/local_rendezvous.h"

#include <fmt/core.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "core/base/error.h"
#include "core/base/sanitizer_testing.h"
#include "core/bootstrap/abstract_name_testing.h"
#include "core/transport/socket.h"

namespace hvd {
namespace {

using namespace std::chrono_literals;

constexpr uid_t kAnotherUser = 65534;

std::string unique_name() {
  static int last = 0;
  return fmt::format("listener/{}/{}", ::getpid(), ++last);
}

std::vector<FileDescriptor> visitors_at(const RendezvousListener& listener, int count) {
  std::vector<FileDescriptor> visitors;
  const StartDeadline deadline(10s);
  for (int i = 0; i < count; ++i)
    visitors.push_back(connect_unix(test::abstract_name_of(listener.fd()), deadline.at));
  return visitors;
}

int answered(const std::vector<FileDescriptor>& visitors) {
  return static_cast<int>(std::ranges::count_if(visitors, [](const FileDescriptor& one) {
    pollfd entry{one.get(), POLLIN, 0};
    return ::poll(&entry, 1, 0) == 1;
  }));
}

TEST(RendezvousListener, SendsItsTextToThisUser) {
  const std::string name = unique_name();
  RendezvousListener listener(name, "the address");
  const auto visitors = visitors_at(listener, 1);
  EXPECT_TRUE(listener.answer());
  std::string said(100, '\0');
  said.resize(static_cast<size_t>(::recv(visitors[0].get(), said.data(), said.size(), 0)));
  EXPECT_EQ(said, "the address");
}

TEST(RendezvousListener, AnswersABoundedNumberPerTurn) {
  RendezvousListener listener(unique_name(), "the address");
  const auto visitors = visitors_at(listener, 2 * RendezvousListener::kConnectionsPerTurn + 1);
  for (const int expected : {1, 2}) {
    EXPECT_TRUE(listener.answer());
    EXPECT_EQ(answered(visitors), expected * RendezvousListener::kConnectionsPerTurn);
  }
  EXPECT_TRUE(listener.answer());
  EXPECT_EQ(answered(visitors), static_cast<int>(visitors.size()));
}

/// Connects repeatedly as another user: 0 if it never received anything.
int ask_as_another_user(const std::string& name, int times) {
  if (::setgroups(0, nullptr) != 0 || ::setuid(kAnotherUser) != 0) return 1;
  for (int i = 0; i < times; ++i) {
    const auto until = std::chrono::steady_clock::now() + 10s;
    const FileDescriptor socket = try_connect_unix(name, until);
    char told = 0;
    if (!socket || !wait_until_ready(socket.get(), POLLIN, until)) return 2;
    if (::recv(socket.get(), &told, 1, MSG_DONTWAIT) != 0) return 3;
  }
  return 0;
}

TEST(RendezvousListener, WarnsOnceOfAnotherUserHoweverOftenItAsks) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  RendezvousListener listener(unique_name(), "the address");
  const std::string name = test::abstract_name_of(listener.fd());
  const pid_t child = ::fork();
  if (child == 0) ::_exit(ask_as_another_user(name, 500));
  ::testing::internal::CaptureStderr();
  int status = -1;
  while (::waitpid(child, &status, WNOHANG) == 0) EXPECT_TRUE(listener.answer());
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(status, 0);
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
  EXPECT_NE(log.find("refused this job's key to a process of user 65534"), std::string::npos)
      << log;
}

/// In a process of its own, whose limit changes: 0 if no turn accepted the connection.
[[noreturn]] void answer_without_descriptors() {
  RendezvousListener listener(unique_name(), "the address");
  const auto visitors = visitors_at(listener, 1);
  const rlimit limit{.rlim_cur = static_cast<rlim_t>(visitors[0].get()) + 1, .rlim_max = 500};
  ::setrlimit(RLIMIT_NOFILE, &limit);
  bool took = false;
  for (int turn = 0; turn < 100; ++turn) took |= listener.answer();
  std::exit(took ? 1 : 0);
}

TEST(RendezvousListenerDeathTest, ThatHasNoDescriptorForAVisitorSaysSoOnceAndAsksForAPause) {
  if (kSanitizerNeedsDescriptors) GTEST_SKIP() << "UBSan needs descriptors";
  EXPECT_EXIT(
      answer_without_descriptors(), testing::ExitedWithCode(0),
      "^[^\n]*rank 0 cannot accept the other ranks of this machine: Too many open files: "
      "the limit of this process is [0-9]+ open descriptors; raise the limit: ulimit -n 500 "
      "[^\n]*\n$");
}

}  // namespace
}  // namespace hvd
