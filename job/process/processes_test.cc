// spawn.h, descendants.h and caller.h, which together are how ranks begin and end.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "core/base/error.h"
#include "core/transport/file_descriptor.h"
#include "job/process/caller.h"
#include "job/process/cores.h"
#include "job/process/descendants.h"
#include "job/process/spawn.h"

namespace hvd::job {
namespace {

TEST(Stat, TakesAnyNameOfAProcess) {
  ProcessStat stat;
  ASSERT_TRUE(parse_stat("12 (a) (b) 3 4) S 7 12 12 0", stat));
  EXPECT_EQ(stat.pid, 12);
  EXPECT_EQ(stat.parent, 7);
  EXPECT_EQ(stat.state, 'S');
  for (const char* bad : {"", "12", "12 (a", "12 (a)", "12 (a) S", "x (a) S 7"})
    EXPECT_FALSE(parse_stat(bad, stat)) << bad;
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
  EXPECT_GE(descendants().size(), 2u);
  int reaped = 0;
  kill_descendants([&](pid_t, int) { ++reaped; });
  EXPECT_EQ(reaped, 3);
  EXPECT_TRUE(descendants().empty());
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
