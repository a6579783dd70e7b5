// Tests spawn.h, descendants.h and caller.h, which start and end ranks.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <memory>

#include "core/base/error.h"
#include "core/base/syscall_testing.h"
#include "core/transport/file_descriptor.h"
#include "launcher/process/caller.h"
#include "launcher/process/cores.h"
#include "launcher/process/descendants.h"
#include "launcher/process/open_files.h"
#include "launcher/process/piped_child.h"
#include "launcher/process/spawn.h"

namespace hvd::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::chrono::seconds kPatience{60};

TEST(NamespacePids, AreThoseOfTheLineNSpid) {
  EXPECT_THAT(parse_namespace_pids("Name:\tsh\nPid:\t812\nNSpid:\t812\t7\t1\nNSpgid:\t812\n"),
              ElementsAre(812, 7, 1));
  EXPECT_THAT(parse_namespace_pids("Name:\tNSpid:\nPid:\t812\n"), IsEmpty());
  EXPECT_THAT(parse_namespace_pids(""), IsEmpty());
}

TEST(AwaitsSignal, WhoHandlesItOrTakesItFromAQueue) {
  const std::string status =
      "Name:\tx\nSigQ:\t0/1\nSigPnd:\t0000000000000200\nSigBlk:\t0000000000000800\n"
      "SigIgn:\t0000000001001000\nSigCgt:\t0000000180000002\n";
  EXPECT_TRUE(awaits_signal(status, SIGINT)) << "has a handler";
  EXPECT_TRUE(awaits_signal(status, SIGUSR2)) << "is blocked";
  EXPECT_FALSE(awaits_signal(status, SIGUSR1)) << "is pending";
  EXPECT_FALSE(awaits_signal(status, SIGPIPE)) << "is ignored";
  EXPECT_FALSE(awaits_signal("", SIGINT)) << "has ended";
}

/// A process of which one status after the other is seen, the last one for ever.
struct Watched {
  std::vector<std::string> statuses;
  size_t looks = 0;

  bool awaits(int number, int pauses) {
    const auto status = [this] { return statuses[std::min(looks++, statuses.size() - 1)]; };
    return awaits_signal(status, number, [&pauses] { return --pauses > 0; });
  }
};

TEST(AwaitsSignal, NotWhoOnlyStartsAProcess) {
  const std::string all = "\nSigBlk:\tfffffffe7ffbfeff\nSigCgt:\t0\n";
  const std::string none = "\nSigBlk:\t0000000000000000\nSigCgt:\t0000000180000002\n";
  Watched shell{{all, all, none}};
  EXPECT_FALSE(shell.awaits(SIGUSR1, 100)) << "the shell has started its program";
  EXPECT_EQ(shell.looks, 3U);
  EXPECT_TRUE((Watched{{all, none}}.awaits(SIGINT, 100))) << "has a handler";
  Watched queue{{all}};
  EXPECT_TRUE(queue.awaits(SIGUSR1, 5)) << "takes all signals from a queue";
  EXPECT_EQ(queue.looks, 5U);
  Watched one{{"\nSigBlk:\t0000000000000200\nSigCgt:\t0\n"}};
  EXPECT_TRUE(one.awaits(SIGUSR1, 100));
  EXPECT_EQ(one.looks, 1U) << "it is not a moment that is looked at again";
  Watched ended{{all, ""}};
  EXPECT_FALSE(ended.awaits(SIGUSR1, 100)) << "has ended";
}

TEST(FindProgram, LooksWhereTheShellLooks) {
  EXPECT_EQ(find_program("sh", "/nowhere:/bin"), "/bin/sh");
  EXPECT_EQ(find_program("/bin/sh", ""), "/bin/sh");
  EXPECT_EQ(find_program("sh", "/nowhere"), "");
  EXPECT_EQ(find_program("/etc/passwd", ""), "") << "not executable";
  EXPECT_EQ(find_program("/bin", ""), "") << "a folder";
}

struct ShellRun {
  pid_t pid = -1;
  int error = 0;
  std::string out;
  int wait_status = 0;
};

ShellRun run_shell(const std::string& path, const std::string& text,
                   const std::vector<int>& cpus = {}) {
  int ends[2];
  EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  ProcessDefaults defaults;
  sigemptyset(&defaults.signal_mask);
  defaults.on_broken_pipe.sa_handler = SIG_DFL;
  getrlimit(RLIMIT_NOFILE, &defaults.open_files);
  const Program program{.path = path,
                        .arguments = {"sh", "-c", text},
                        .environment = {"WORD=there"},
                        .in = null,
                        .out = ends[1],
                        .err = null,
                        .cpus = cpus};
  const Spawned spawned(program, defaults);
  ShellRun run{.pid = spawned.pid(), .out = {}};
  close(ends[1]);
  char buffer[4096];
  for (ssize_t size; (size = read(ends[0], buffer, sizeof(buffer))) > 0;)
    run.out.append(buffer, static_cast<size_t>(size));
  for (const int fd : {ends[0], null}) close(fd);
  waitpid(run.pid, &run.wait_status, 0);
  run.error = spawned.error();
  return run;
}

TEST(Spawn, GivesDescriptorsEnvironmentAndAGroupOfItsOwn) {
  const ShellRun run =
      run_shell("/bin/sh", "echo $WORD $(ps -o pgid= -p $$) $$; readlink /proc/$$/fd/0; exit 3");
  EXPECT_EQ(run.error, 0);
  const std::string pid = std::to_string(run.pid);
  EXPECT_EQ(run.out, "there " + pid + " " + pid + "\n/dev/null\n");
  EXPECT_EQ(WEXITSTATUS(run.wait_status), 3);
}

TEST(Spawn, BindsToTheCpusThatAreNamed) {
  const std::string show = "sed -n 's/^Cpus_allowed_list:\t//p' /proc/self/status";
  const std::vector<int> own = allowed_cpus();
  EXPECT_EQ(run_shell("/bin/sh", show).out, cpus_text(own) + "\n");
  EXPECT_EQ(run_shell("/bin/sh", show, {own.back()}).out, cpus_text({own.back()}) + "\n");
}

TEST(Spawn, StartsUnboundWhereTheCpusAreGone) {
  const ShellRun run = run_shell("/bin/sh", "echo runs", {8000});
  EXPECT_EQ(run.out, "runs\n");
}

TEST(Spawn, TellsWhyAProgramCannotBeStarted) {
  const ShellRun run = run_shell("/nowhere", "");
  EXPECT_EQ(run.error, ENOENT);
  EXPECT_EQ(run.out, "");
}

/// A program for tests of the start itself.
struct Bare {
  Program program(const std::string& path) const {
    return {.path = path,
            .arguments = {path},
            .environment = {},
            .in = STDIN_FILENO,
            .out = STDOUT_FILENO,
            .err = STDERR_FILENO};
  }
  ProcessDefaults defaults = current_defaults();
};

TEST(Spawn, LeavesErrnoOfTheParentAlone) {
  const Bare bare;
  const Program nowhere = bare.program("/nowhere");
  for (int round = 0; round < 20; ++round) {
    errno = 0;
    const Spawned spawned(nowhere, bare.defaults);
    siginfo_t ended;
    ASSERT_EQ(waitid(P_PID, spawned.pid(), &ended, WEXITED), 0);
    EXPECT_EQ(errno, 0);
    EXPECT_EQ(spawned.error(), ENOENT);
  }
}

/// The memory of a child that has not reached exec is not reused.
TEST(Spawn, IsNotDestroyedUnderARunningChild) {
  const Bare bare;
  const Program program = bare.program("/bin/true");
  for (int round = 0; round < 200; ++round) {
    auto spawned = std::make_unique<Spawned>(program, bare.defaults);
    const pid_t pid = spawned->pid();
    spawned.reset();
    const std::vector<char> next_owner(size_t{64} << 10, '\xff');  // as large as its stack
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    ASSERT_TRUE(WIFEXITED(status) || WTERMSIG(status) == SIGKILL) << WTERMSIG(status);
  }
}

TEST(Spawn, TellsWhyThereCanBeNoProcess) {
  const Bare bare;
  const Program program = bare.program("/bin/true");
  const auto told = hvd::test::without(SYS_clone, [&] {
    const Spawned spawned(program, bare.defaults);
    return spawned.pid() == -1 && spawned.error() == ENOSYS;
  });
  if (!told) GTEST_SKIP() << "filters are not allowed here";
  EXPECT_TRUE(*told);
}

TEST(PipedChild, IsGoneWhenItCannotBeWatched) {
  const Bare bare;
  const hvd::test::RefusedCalls watching{SYS_pidfd_open, SYS_pidfd_open, EMFILE};
  const auto gone = hvd::test::without(watching, [&] {
    try {
      const PipedChild child(bare.program("/bin/cat"), bare.defaults);
      return false;
    } catch (const Error&) {
      return waitpid(-1, nullptr, WNOHANG) < 0 && errno == ECHILD;
    }
  });
  if (!gone) GTEST_SKIP() << "filters are not allowed here";
  EXPECT_TRUE(*gone);
}

/// Writes to and reads from a child. Returns whether its end is reported and its status is 0.
bool is_served_by_a_child() {
  const Bare bare;
  PipedChild child(bare.program("/bin/cat"), bare.defaults);
  char byte = 0;
  if (write(child.in.get(), "x", 1) != 1) return false;
  child.in.reset();
  pollfd ended{child.process().get(), POLLIN, 0};
  return poll(&ended, 1, -1) == 1 && read(child.out.get(), &byte, 1) == 1 && byte == 'x' &&
         child.wait() == 0 && child.error() == 0;
}

TEST(PipedChild, ReadsWhatWeWriteAndIsWaitedFor) { EXPECT_TRUE(is_served_by_a_child()); }

TEST(PipedChild, IsWaitedForOnLinux418) {
  for (const int error : {ENOSYS, EPERM}) {
    const auto served =
        hvd::test::without(hvd::test::newer_than_linux_4_18(error), is_served_by_a_child);
    if (!served) GTEST_SKIP() << "filters are not allowed here";
    EXPECT_TRUE(*served) << error;
  }
}

TEST(OpenFiles, ShortageNamesBothNumbers) {
  ProcessDefaults defaults;
  defaults.open_files = {.rlim_cur = 64, .rlim_max = 1024};
  EXPECT_EQ(shortage_of({.local_ranks = 200, .store_clients = 200}, defaults), "");
  EXPECT_EQ(shortage_of({.local_ranks = 300, .store_clients = 300}, defaults),
            "1232 open files are needed to start 300 ranks here, and the limit is 1024");
  EXPECT_NE(shortage_of({.local_ranks = 1, .store_clients = 2000}, defaults), "");
  EXPECT_NE(shortage_of({.ssh_count = 300}, defaults), "");
  defaults.open_files.rlim_max = 32;
  EXPECT_NE(shortage_of({.local_ranks = 1, .store_clients = 1}, defaults), "");
  defaults.open_files.rlim_max = RLIM_INFINITY;
  EXPECT_EQ(shortage_of({.local_ranks = 10000}, defaults), "");
  EXPECT_EQ(shortage_of({.local_ranks = 20000}, defaults),
            "80032 open files are needed to start 20000 ranks here, and the limit is 65536");
}

TEST(Descendants, AreGivenUpWhenTheyDoNotEndInTime) {
  const pid_t child = fork();
  if (child == 0) pause();
  EXPECT_FALSE(Descendants().kill_all(std::chrono::milliseconds(0), [](pid_t, int) {}));
  EXPECT_TRUE(Descendants().kill_all(kPatience, [](pid_t, int) {}));
}

TEST(Descendants, AreAllKilledAlsoThoseThatHidInASessionOfTheirOwn) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    if (fork() == 0) {
      setsid();
      if (fork() == 0) {
        signal(SIGTERM, SIG_IGN);
        write(ends[1], "x", 1) == 1 ? pause() : 0;
      }
      _exit(0);
    }
    pause();
  }
  char ready = 0;
  ASSERT_EQ(read(ends[0], &ready, 1), 1);
  EXPECT_EQ(why_descendants_are_hidden(), "");
  EXPECT_GE(find_descendants()->size(), 2u);
  int reaped = 0;
  EXPECT_TRUE(Descendants().kill_all(kPatience, [&](pid_t, int) { ++reaped; }));
  EXPECT_EQ(reaped, 3);
  EXPECT_TRUE(find_descendants()->empty());
  close(ends[1]);
  EXPECT_EQ(read(ends[0], &ready, 1), 0) << "no process holds the pipe";
  close(ends[0]);
  prctl(PR_SET_CHILD_SUBREAPER, 0);
}

TEST(Caller, GivesAWholeKeyOrNone) {
  const int file = memfd_create("key", 0);
  ASSERT_EQ(pwrite(file, "short", 5, 0), 5);
  EXPECT_THROW(read_caller_key(file), Error);
  const std::string whole(32, 'k');
  ASSERT_EQ(pwrite(file, whole.data(), whole.size(), 0), 32);
  EXPECT_EQ(read_caller_key(file).bytes[31], std::byte{'k'});
  EXPECT_EQ(fcntl(file, F_GETFD), FD_CLOEXEC);
  close(file);
  EXPECT_THROW(read_caller_key(file), Error);
}

}  // namespace
}  // namespace hvd::launcher
