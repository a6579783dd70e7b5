#include "core/transport/file_descriptor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace hvd {
namespace {

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }
int open_null() { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); }

/// Returns the result of `answer` in a forked child.
bool in_child(const std::function<bool()>& answer) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(answer() ? 1 : 0);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  return WEXITSTATUS(status) == 1;
}

TEST(FileDescriptor, ClosesWhenItsOwnerGoes) {
  const int fd = open_null();
  {
    FileDescriptor first(fd);
    FileDescriptor second(std::move(first));
    EXPECT_FALSE(first);
    EXPECT_EQ(second.get(), fd);
    EXPECT_TRUE(is_open(fd));
  }
  EXPECT_FALSE(is_open(fd));
}

TEST(FileDescriptor, IsClosedInAForkedChildAndStaysOpenInTheParent) {
  const FileDescriptor ours(open_null());
  const FileDescriptor kept(open_null(), AtFork::keep);
  EXPECT_TRUE(in_child([&] { return !is_open(ours.get()) && is_open(kept.get()); }));
  EXPECT_TRUE(is_open(ours.get()));
  EXPECT_TRUE(is_open(kept.get()));
}

TEST(FileDescriptor, OwnerInAForkedChildLeavesAReusedNumberAlone) {
  FileDescriptor ours(open_null());
  EXPECT_TRUE(in_child([&] {
    const int reused = ::fcntl(STDERR_FILENO, F_DUPFD, ours.get());  // reuses the closed number
    const bool same = reused == ours.get();
    ours.reset();
    return same && is_open(reused);
  }));
}

TEST(FileDescriptor, IsNotClosedAtForkOnceItIsClosedHere) {
  FileDescriptor ours(open_null());
  const int fd = ours.get();
  ours.reset();
  const FileDescriptor another(::fcntl(STDERR_FILENO, F_DUPFD, fd), AtFork::keep);
  ASSERT_EQ(another.get(), fd);
  EXPECT_TRUE(in_child([&] { return is_open(fd); }));
}

}  // namespace
}  // namespace hvd
