// spawn.h, descendants.h and caller.h, which together are how ranks begin and end.
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
#include "job/process/caller.h"
#include "job/process/cores.h"
#include "job/process/descendants.h"
#include "job/process/open_files.h"
#include "job/process/piped_child.h"
#include "job/process/spawn.h"

namespace hvd::job {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::chrono::seconds kPatience{60};

TEST(Stat, TakesAnyNameOfAProcess) {
  ProcessStat stat;
  ASSERT_TRUE(parse_stat("12 (a) (b) 3 4) S 7 12 12 0", stat));
  EXPECT_EQ(stat.pid, 12);
  EXPECT_EQ(stat.parent, 7);
  EXPECT_EQ(stat.state, 'S');
  for (const char* bad : {"", "12", "12 (a", "12 (a)", "12 (a) S", "x (a) S 7"})
    EXPECT_FALSE(parse_stat(bad, stat)) << bad;
}

TEST(NamespacePids, AreThoseOfTheLineNSpid) {
  EXPECT_THAT(parse_namespace_pids("Name:\tsh\nPid:\t812\nNSpid:\t812\t7\t1\nNSpgid:\t812\n"),
              ElementsAre(812, 7, 1));
  EXPECT_THAT(parse_namespace_pids("Name:\tNSpid:\nPid:\t812\n"), IsEmpty());
  EXPECT_THAT(parse_namespace_pids(""), IsEmpty());
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
  const int key = open("/dev/zero", O_RDONLY | O_CLOEXEC);
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
                        .key = key,
                        .key_target = 100,
                        .cpus = cpus};
  const Spawned spawned(program, defaults);
  ShellRun run{.pid = spawned.pid(), .out = {}};
  close(ends[1]);
  char buffer[4096];
  for (ssize_t size; (size = read(ends[0], buffer, sizeof(buffer))) > 0;)
    run.out.append(buffer, static_cast<size_t>(size));
  for (const int fd : {ends[0], null, key}) close(fd);
  waitpid(run.pid, &run.wait_status, 0);
  run.error = spawned.error();
  return run;
}

TEST(Spawn, GivesDescriptorsEnvironmentAndAGroupOfItsOwn) {
  const ShellRun run =
      run_shell("/bin/sh", "echo $WORD $(ps -o pgid= -p $$) $$; readlink /proc/$$/fd/100; exit 3");
  EXPECT_EQ(run.error, 0);
  const std::string pid = std::to_string(run.pid);
  EXPECT_EQ(run.out, "there " + pid + " " + pid + "\n/dev/zero\n");
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

/// What a program needs that is started for nothing but how it starts.
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

/// The memory of a child that is still on its way to exec is not given to anybody else.
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
  const auto told = hvd::testing::without(SYS_clone, [&] {
    const Spawned spawned(program, bare.defaults);
    return spawned.pid() == -1 && spawned.error() == ENOSYS;
  });
  if (!told) GTEST_SKIP() << "filters are not allowed here";
  EXPECT_TRUE(*told);
}

TEST(PipedChild, IsGoneWhenItCannotBeWatched) {
  const Bare bare;
  const auto gone = hvd::testing::without(SYS_pidfd_open, [&] {
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

TEST(PipedChild, ReadsWhatWeWriteAndIsWaitedFor) {
  const Bare bare;
  PipedChild child(bare.program("/bin/cat"), bare.defaults);
  ASSERT_EQ(write(child.in.get(), "x", 1), 1);
  child.in.reset();
  pollfd ended{child.process().get(), POLLIN, 0};
  ASSERT_EQ(poll(&ended, 1, -1), 1);
  char byte = 0;
  EXPECT_EQ(read(child.out.get(), &byte, 1), 1);
  EXPECT_EQ(byte, 'x');
  EXPECT_EQ(child.wait(), 0);
  EXPECT_EQ(child.error(), 0);
}

TEST(OpenFiles, ShortageNamesBothNumbers) {
  ProcessDefaults defaults;
  defaults.open_files = {.rlim_cur = 64, .rlim_max = 1024};
  EXPECT_EQ(shortage_of({.local_ranks = 200, .store_clients = 200}, defaults), "");
  EXPECT_EQ(shortage_of({.local_ranks = 300, .store_clients = 300}, defaults),
            "1232 open files are needed to start 300 ranks here, and the limit is 1024");
  EXPECT_NE(shortage_of({.local_ranks = 1, .store_clients = 2000}, defaults), "");
  EXPECT_NE(shortage_of({.ssh_count = 300}, defaults), "");
  defaults.open_files.rlim_max = 64;  // the key has a higher number
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
  EXPECT_EQ(read(ends[0], &ready, 1), 0) << "nobody holds the pipe any more";
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
}  // namespace hvd::job
