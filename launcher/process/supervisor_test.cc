#include "launcher/process/supervisor.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <map>
#include <string>
#include <vector>

#include "core/base/process_tree.h"
#include "launcher/process/descendants.h"
#include "launcher/process/keeper.h"
#include "launcher/process/small_file.h"

namespace hvd::launcher {
namespace {

using Kind = SupervisorMessage::Kind;

class SupervisorTest : public ::testing::Test {
 protected:
  SupervisorTest() { prctl(PR_SET_CHILD_SUBREAPER, 1); }
  ~SupervisorTest() override { end(); }

  WorkerProgram program(std::vector<std::string> command) const {
    return {.program = {.path = command.front(),
                        .arguments = command,
                        .environment = {},
                        .in = null.get(),
                        .out = null.get(),
                        .err = null.get()}};
  }
  int start(const std::vector<std::string>& command) {
    return supervisor.start(std::vector{program(command)});
  }
  /// Waits for the next message.
  SupervisorMessage next() {
    while (true) {
      if (const auto message = supervisor.receive()) return *message;
      if (supervisor.fd() < 0) return {Kind::no_more_workers, 0, 0};
      pollfd watched{supervisor.fd(), POLLIN, 0};
      poll(&watched, 1, -1);
    }
  }
  /// Waits for this message about this program. Fails if `nothing_left` comes before.
  int value_of(Kind kind, int index) {
    while (true) {
      const SupervisorMessage message = next();
      EXPECT_NE(message.kind, Kind::nothing_left) << "program " << index << " has not ended";
      if (message.kind == kind && message.index == index) return message.value;
    }
  }
  void end() {
    supervisor.signal_all(SIGKILL);
    supervisor.no_more_workers();
    while (supervisor.fd() >= 0) next();
  }

  const FileDescriptor null{open("/dev/null", O_RDWR | O_CLOEXEC)};
  Supervisor supervisor{SupervisorSetup{
      .defaults = current_defaults(), .keeper = make_keeper_name(), .key = make_job_key()}};
};

TEST_F(SupervisorTest, StaysWhenNothingIsLeftUntilNoMoreWorkersCome) {
  EXPECT_EQ(start({"/bin/true"}), 0);
  EXPECT_EQ(value_of(Kind::exited, 0), 0);
  EXPECT_EQ(next().kind, Kind::nothing_left);
  EXPECT_EQ(start({"/bin/false"}), 1);
  EXPECT_EQ(WEXITSTATUS(value_of(Kind::exited, 1)), 1);
  supervisor.no_more_workers();
  EXPECT_EQ(next().kind, Kind::nothing_left);
  EXPECT_EQ(supervisor.fd(), -1);
  EXPECT_FALSE(supervisor.is_lost());
  EXPECT_EQ(supervisor.wait_status(), 0);
}

TEST_F(SupervisorTest, AnEndThatIsToldLateIsNotThatOfTheNextProgram) {
  int last = start({"/bin/true"});
  for (int round = 0; round < 50; ++round) {
    value_of(Kind::exited, last);  // `nothing_left` comes before or after the next start
    last = start({"/bin/true"});
  }
  value_of(Kind::exited, last);
  EXPECT_EQ(next().kind, Kind::nothing_left);
}

TEST_F(SupervisorTest, StartsMoreProgramsThanAMessageHolds) {
  const std::vector<WorkerProgram> many(2 * kMaxProgramsPerMessage + 1, program({"/bin/true"}));
  supervisor.start(many);
  std::map<int, int> ended;
  for (SupervisorMessage message = next(); message.kind != Kind::nothing_left; message = next())
    if (message.kind == Kind::exited) ended.emplace(message.index, message.value);
  EXPECT_EQ(ended.size(), many.size());
  EXPECT_EQ(ended.rbegin()->first, static_cast<int>(many.size()) - 1);
}

TEST_F(SupervisorTest, StartsAgainAfterAllWereKilled) {
  start({"/bin/sleep", "900"});
  supervisor.signal_all(SIGKILL);
  EXPECT_EQ(WTERMSIG(value_of(Kind::exited, 0)), SIGKILL);
  EXPECT_EQ(next().kind, Kind::nothing_left);
  supervisor.signal_all(SIGKILL);  // nothing to kill; later programs are not affected
  start({"/bin/sleep", "0.2"});
  EXPECT_EQ(value_of(Kind::exited, 1), 0);
}

TEST_F(SupervisorTest, AProgramThatIsMissingConcernsNoLaterOne) {
  start({"/nowhere"});
  EXPECT_EQ(value_of(Kind::not_started, 0), ENOENT);
  EXPECT_EQ(next().kind, Kind::nothing_left);
  start({"/bin/true"});
  EXPECT_EQ(value_of(Kind::exited, 1), 0);
}

TEST_F(SupervisorTest, TakesAnEnvironmentThatIsLargerThanAMessage) {
  WorkerProgram large = program({"/bin/sh", "-c", "[ ${#LARGE} = 100000 ]"});
  for (int i = 0; i < 10; ++i)
    large.program.environment.push_back("FILLING" + std::to_string(i) + "=" +
                                        std::string(100000, 'x'));
  large.program.environment.push_back("LARGE=" + std::string(100000, 'y'));
  supervisor.start(std::vector{large});
  EXPECT_EQ(value_of(Kind::exited, 0), 0);
}

TEST_F(SupervisorTest, IsLostWhenItIsKilled) {
  start({"/bin/sleep", "900"});
  const pid_t supervised = value_of(Kind::started, 0);
  const auto stat = [&](pid_t process) {
    ProcessStat found;
    parse_stat(read_small_file("/proc/" + std::to_string(process) + "/stat"), found);
    return found;
  };
  kill(stat(supervised).parent, SIGKILL);
  while (supervisor.fd() >= 0) next();
  EXPECT_TRUE(supervisor.is_lost());
  EXPECT_EQ(WTERMSIG(supervisor.wait_status()), SIGKILL);
  Descendants().kill_all(std::chrono::seconds(60), [](pid_t, int) {});
}

/// A worker that says when it is up, writes more than its pipe holds, and saves when it gets
/// `signal`.
std::string saving_at(const std::string& signal) {
  return "trap 'echo saved; echo " + signal + " > $SAVED; exit' " + signal +
         "; sleep 1000 & i=0; while [ $i -lt 50000 ]; do echo up; i=$((i + 1)); done; wait";
}

/// Returns what a worker saves at `signal` that loses the starter of its supervisor.
std::string saved_without_starter(const std::string& signal, SupervisorSetup setup) {
  const std::string saved = ::testing::TempDir() + "supervisor_saved." + std::to_string(getpid());
  int pipe[2];
  EXPECT_EQ(pipe2(pipe, O_CLOEXEC), 0);
  FileDescriptor output(pipe[0]), written(pipe[1]);
  {
    setup.keeper = make_keeper_name();
    setup.key = make_job_key();
    Supervisor supervisor(setup);
    const std::vector<std::string> command{"/bin/sh", "-c", saving_at(signal)};
    Program program{.path = "/bin/sh", .arguments = command, .environment = {"SAVED=" + saved}};
    program.in = program.out = program.err = written.get();
    supervisor.start(std::vector{WorkerProgram{.program = program}});
    char first;
    EXPECT_EQ(read(output.get(), &first, 1), 1);
    written.reset();
    output.reset();  // nobody reads its output any more
  }
  int status = 0;
  while (wait(&status) < 0 && errno == EINTR) {
  }
  const std::string text = read_small_file(saved);
  unlink(saved.c_str());
  return text;
}

TEST(LostStarter, IsFollowedByTheCommitsOfItsWorkers) {
  const SupervisorSetup setup{.defaults = current_defaults(),
                              .workers_commit = true,
                              .grace = std::chrono::minutes(1),
                              .commits_when_lost = true};
  EXPECT_EQ(saved_without_starter("TERM", setup), "TERM\n");
}

TEST(LostStarter, InterruptsWorkersThatGoOn) {
  // Shells ignore it for what they start in the background, and so would the worker.
  const auto before = std::signal(SIGINT, SIG_DFL);
  const SupervisorSetup setup{.defaults = current_defaults(), .grace = std::chrono::seconds(4)};
  EXPECT_EQ(saved_without_starter("INT", setup), "INT\n");
  std::signal(SIGINT, before);
}

}  // namespace
}  // namespace hvd::launcher
