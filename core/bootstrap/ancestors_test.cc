#include "core/bootstrap/ancestors.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

namespace hvd {
namespace {

/// What a child of a process that acts as `user` finds.
bool child_finds_parent_that_acts_as(uid_t user) {
  const pid_t parent = ::fork();
  if (parent == 0) {
    int ready[2];
    if (::pipe(ready) != 0) ::_exit(2);
    const pid_t child = ::fork();
    char byte = 0;
    if (child == 0) {
      if (::read(ready[0], &byte, 1) != 1) ::_exit(2);
      ::_exit(std::ranges::count(ancestors(), ::getppid()) == 1 ? 0 : 1);
    }
    if (::seteuid(user) != 0 || ::write(ready[1], &byte, 1) != 1) ::_exit(2);
    int status = 0;
    ::waitpid(child, &status, 0);
    ::_exit(WEXITSTATUS(status));
  }
  int status = 0;
  EXPECT_EQ(::waitpid(parent, &status, 0), parent);
  EXPECT_NE(WEXITSTATUS(status), 2);
  return WEXITSTATUS(status) == 0;
}

TEST(Ancestors, OfThisUserAreFound) { EXPECT_TRUE(child_finds_parent_that_acts_as(::geteuid())); }

TEST(Ancestors, OfAnotherUserAreNoAdviceForRoot) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can act as another user";
  EXPECT_FALSE(child_finds_parent_that_acts_as(65534));
}

}  // namespace
}  // namespace hvd
