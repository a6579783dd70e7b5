#include "core/base/process_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace hvd {
namespace {

using ::testing::IsEmpty;

TEST(ProcessTree, ShowsAParentAndWhatIsAboveIt) {
  ASSERT_TRUE(processes_are_visible());
  EXPECT_EQ(parent_of(::getpid()), ::getppid());
  const std::vector<pid_t> above = processes_above(::getpid());
  ASSERT_FALSE(above.empty());
  EXPECT_EQ(above.front(), ::getppid());
  EXPECT_LE(above.size(), kMaxGenerations);
}

TEST(Stat, TakesAnyNameOfAProcess) {
  ProcessStat stat;
  ASSERT_TRUE(parse_stat("12 (a) (b) 3 4) S 7 12 12 0", stat));
  EXPECT_EQ(stat.pid, 12);
  EXPECT_EQ(stat.parent, 7);
  EXPECT_EQ(stat.state, 'S');
  EXPECT_EQ(stat.threads, std::nullopt) << "the line ends before";
  ASSERT_TRUE(parse_stat("12 (a) Z 7 12 12 0 -1 4 0 0 0 0 1 2 3 4 20 0 3 0 555", stat));
  EXPECT_EQ(stat.threads, 3);
  for (const char* bad : {"", "12", "12 (a", "12 (a)", "12 (a) S", "x (a) S 7"})
    EXPECT_FALSE(parse_stat(bad, stat)) << bad;
}

TEST(ProcessTree, ShowsTheOpenFilesOfAProcess) {
  const int file = ::memfd_create("process-tree-test", MFD_CLOEXEC);
  const auto path = open_file_of(::getpid(), "process-tree-test");
  EXPECT_EQ(path, "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(file));
  ::close(file);
  EXPECT_EQ(open_file_of(::getpid(), "process-tree-test"), "");
}

TEST(ProcessTree, OfAProcessThatIsGoneIsEmpty) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(parent_of(child), 0);
  EXPECT_THAT(processes_above(child), IsEmpty());
  EXPECT_EQ(open_file_of(child, ""), std::nullopt);
}

/// Runs a check in the first process of a new PID namespace that still sees the old /proc; 2:
/// namespaces are not available.
int seen_from_a_new_namespace() {
  const pid_t outer = ::fork();
  if (outer == 0) {
    if (::unshare(CLONE_NEWPID) != 0) ::_exit(2);
    const pid_t inner = ::fork();
    if (inner == 0) ::_exit(processes_are_visible() ? 1 : 0);
    int status = 0;
    ::waitpid(inner, &status, 0);
    ::_exit(WEXITSTATUS(status));
  }
  int status = 0;
  EXPECT_EQ(::waitpid(outer, &status, 0), outer);
  return WEXITSTATUS(status);
}

TEST(ProcessTree, IsNotVisibleWhereProcShowsAnotherNamespace) {
  const int seen = seen_from_a_new_namespace();
  if (seen == 2) GTEST_SKIP() << "only root can make a PID namespace";
  EXPECT_EQ(seen, 0);
}

}  // namespace
}  // namespace hvd
