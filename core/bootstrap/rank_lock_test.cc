#include "core/bootstrap/rank_lock.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <system_error>

#include "core/base/error.h"
#include "core/transport/socket.h"

namespace hvd {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr uid_t kAnotherUser = 65534;
constexpr int kRank = 3;

Identity rank_of_new_job() {
  static int last = 0;
  Identity identity;
  identity.rank = kRank;
  identity.size = 4;
  identity.job_name = fmt::format("test/{}/{}", ::getpid(), ++last);
  return identity;
}

/// Empty: it has the lock.
std::string error_of(const std::function<void()>& attempt) {
  try {
    attempt();
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    return error.what();
  }
}
std::string error_of_lock(const Identity& identity) {
  return error_of([&] { const RankLock lock(identity); });
}

/// What `says` returns in a forked child, which ends with it.
std::string in_child(const std::function<std::string()>& says) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) std::abort();
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string text = says();
    ::_exit(::write(ends[1], text.data(), text.size()) >= 0 ? 0 : 1);
  }
  ::close(ends[1]);
  std::string text(2000, '\0');
  size_t size = 0;
  for (ssize_t count; (count = ::read(ends[0], &text[size], text.size() - size)) > 0;)
    size += static_cast<size_t>(count);
  ::close(ends[0]);
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
  text.resize(size);
  return text;
}

std::string child_of(pid_t process) {
  return fmt::format("this process is a child of rank 3, not a rank: process {}, above", process);
}

TEST(RankLock, TellsAChildThatItIsNoRank) {
  const Identity identity = rank_of_new_job();
  const RankLock lock(identity);
  const auto told = [&] { return error_of_lock(identity); };
  EXPECT_THAT(in_child(told), StartsWith(child_of(::getpid())));
  EXPECT_THAT(in_child([&] { return in_child(told); }), StartsWith(child_of(::getpid())));
  EXPECT_THAT(in_child([&] { return error_of([&] { lock.require_free(); }); }),
              StartsWith(child_of(::getpid())));
  EXPECT_THAT(in_child([&] { return error_of([&] { require_free(identity); }); }),
              StartsWith(child_of(::getpid())));
}

TEST(RankLock, TellsASiblingWhichProcessIsTheRank) {
  const Identity identity = rank_of_new_job();
  std::array<int, 2> locked{}, done{};
  ASSERT_EQ(::pipe(locked.data()) | ::pipe(done.data()), 0);
  const pid_t first = ::fork();
  if (first == 0) {
    ::close(done[1]);
    const RankLock lock(identity);
    char byte = 0;
    ::_exit(::write(locked[1], "x", 1) + ::read(done[0], &byte, 1) == 1 ? 0 : 1);
  }
  char byte = 0;
  ASSERT_EQ(::read(locked[0], &byte, 1), 1);
  EXPECT_THAT(error_of_lock(identity),
              HasSubstr(fmt::format("({}) is not rank 3: process {} is", ::getpid(), first)));
  for (const int fd : {locked[0], locked[1], done[0], done[1]}) ::close(fd);
  EXPECT_EQ(::waitpid(first, nullptr, 0), first);
  EXPECT_EQ(error_of_lock(identity), "") << "the first has ended";
}

TEST(RankLock, LetsAChildBeTheRankAfterItsParent) {
  const Identity identity = rank_of_new_job();
  RankLock lock(identity);
  lock.release();
  EXPECT_EQ(
      in_child([&] { return error_of([&] { lock.require_free(); }) + error_of_lock(identity); }),
      "");
  EXPECT_EQ(error_of_lock(identity), "");
}

TEST(RankLock, IsOfOneRankOfOneJob) {
  const Identity identity = rank_of_new_job();
  const RankLock lock(identity);
  Identity other = identity;
  other.rank = kRank - 1;
  EXPECT_EQ(error_of_lock(other), "");
  EXPECT_EQ(error_of_lock(rank_of_new_job()), "");
  Identity part = part_of(identity, {1, kRank});
  EXPECT_EQ(part.rank, 1);
  EXPECT_NE(error_of_lock(part), "") << "the launcher's number counts";
}

TEST(RankLock, OfAJobWithoutANameLocksNothing) {
  const RankLock lock{Identity()};
  EXPECT_EQ(error_of_lock(Identity()), "");
}

/// What /proc calls the sockets of this process: "socket:[inode]".
std::set<std::string> own_sockets() {
  std::set<std::string> links;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code closed;  // the descriptor of the listing itself
    links.insert(std::filesystem::read_symlink(entry.path(), closed).string());
  }
  return links;
}

/// The name of the only lock that this process has; other jobs of the machine have theirs.
std::string name_of_lock() {
  const std::set<std::string> own = own_sockets();
  std::ifstream sockets("/proc/net/unix");
  const std::string begin = "@horovod-rank-";
  std::string before;
  for (std::string word; sockets >> word; before = word)
    if (word.starts_with(begin) && own.contains("socket:[" + before + "]")) return word.substr(1);
  return "";
}

/// Listens at `name` as another user until `done` ends, and says so to `taken`. The exit code.
int take_as_another_user(const std::string& name, int taken, int done) try {
  if (::setgid(kAnotherUser) != 0 || ::setuid(kAnotherUser) != 0) return 1;
  const FileDescriptor listener = listen_unix(name);
  char byte = 0;
  return ::write(taken, "x", 1) + ::read(done, &byte, 1) == 1 ? 0 : 1;
} catch (const Error&) {
  return 1;
}

TEST(RankLock, IsNotKeptFromARankByAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  const Identity identity = rank_of_new_job();
  std::optional<RankLock> lock(identity);
  const std::string name = name_of_lock();
  ASSERT_NE(name, "");
  lock.reset();
  std::array<int, 2> taken{}, done{};
  ASSERT_EQ(::pipe(taken.data()) | ::pipe(done.data()), 0);
  const pid_t thief = ::fork();
  if (thief == 0) {
    ::close(done[1]);
    ::_exit(take_as_another_user(name, taken[1], done[0]));
  }
  ::close(taken[1]);
  char byte = 0;
  ASSERT_EQ(::read(taken[0], &byte, 1), 1);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(error_of_lock(identity), "");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("rank 3 is not locked, so init in its child processes is not detected"));
  ::close(done[1]);
  EXPECT_EQ(::waitpid(thief, nullptr, 0), thief);
}

}  // namespace
}  // namespace hvd
