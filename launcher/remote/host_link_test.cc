// Tests what every HostLink does with single workers: one to this machine, and one to an agent
// behind a replacement for ssh.
#include "launcher/local/host_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "core/transport/store_server.h"
#include "launcher/local/local_link.h"
#include "launcher/remote/remote_link.h"

namespace hvd::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr std::chrono::seconds kWatchdog{60};
constexpr int kSlots = 3;

enum class Kind { local, remote };

constexpr WorkerId worker(int slot, int incarnation = 0) { return {0, slot, incarnation}; }

/// Files in the folder control what a worker does after its first line.
constexpr const char* kScript =
    "if [ -e trap ]; then trap 'echo told; kill $!; exit 7' USR1; fi;"
    "echo rank $HOROVOD_RANK of $HOROVOD_SIZE;"
    "if [ -e wait ]; then exec sleep 900; fi;"
    "if [ -e wait-in-child ]; then sleep 900 & wait; fi;"
    "if [ -e leave-child ]; then sleep 900 & fi;"
    "if [ -e trap ]; then sleep 900 & wait; fi";

class HostLinkTest : public ::testing::TestWithParam<Kind> {
 protected:
  HostLinkTest() {
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    std::filesystem::create_directories(folder);
    std::filesystem::current_path(folder);
    key = make_job_key();
    store.emplace(key, "127.0.0.1", uint16_t{0});
    link = GetParam() == Kind::local ? local() : remote();
    run_until([&] { return link->settled(); });
    std::vector<StartRow> rows(1);
    link->tell_rows(rows);
    EXPECT_TRUE(rows.front().ready()) << rows.front().problem;
  }
  ~HostLinkTest() override {
    link->signal_all(SIGKILL);
    link->no_more_workers();
    run_until([&] { return is_empty; });
    std::filesystem::current_path("/");
    std::filesystem::remove_all(folder);
  }

  std::unique_ptr<HostLink> local() {
    LocalPlan plan{.host = 0, .host_name = "box"};
    plan.store.one_host = true;
    return std::make_unique<LocalLink>(command, std::move(plan), key, defaults);
  }
  std::unique_ptr<HostLink> remote() {
    const std::string kubexec = folder + "/in-pod";
    std::ofstream(kubexec) << "#!/bin/sh\nexec sh -c \"$2\"\n";
    std::filesystem::permissions(kubexec, std::filesystem::perms::owner_all);
    setup.key = key;
    setup.folder = folder;
    setup.command = command.arguments;
    setup.environment = command.environment;
    setup.store_addresses = {"127.0.0.1"};
    setup.store_port = store->port();
    setup.start_timeout_seconds = static_cast<uint32_t>(kWatchdog.count());
    RemotePlan plan{.hosts = {{0, "far", kSlots}}, .output_window = 1 * MiB, .ssh = {}};
    plan.ssh.kubexec = kubexec;
    plan.ssh.agent = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "horovodrun";
    return std::make_unique<RemoteLink>(std::move(plan), setup, command.environment, defaults);
  }

  void start(const std::vector<WorkerId>& workers, uint32_t generation = 0) {
    const Assignment assignment = assign_ranks(workers, generation);
    is_empty = false;
    link->start_workers(assignment.workers(), address());
  }
  Address address() const { return {"127.0.0.1", store->port()}; }
  /// Creates a file with this name, which controls the workers.
  void let_workers(const char* what) const { std::ofstream(folder + "/" + what) << "x"; }

  void run_until(const std::function<bool()>& done) {
    const auto deadline = std::chrono::steady_clock::now() + kWatchdog;
    while (!done()) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "timed out";
      std::array<pollfd, 2> watched{{{link->fd(), POLLIN, 0}, {store->fd(), POLLIN, 0}}};
      poll(watched.data(), watched.size(), 1000);
      store->step();
      HostNews news;
      link->take(news);
      for (const Chunk& chunk : news.output) take(chunk);
      for (const HostEvent& event : news.events)
        std::visit([this](const auto& one) { take(one); }, event);
    }
  }
  void take(const Chunk& chunk) {
    written[chunk.worker] += chunk.bytes;
    if (chunk.bytes.empty()) ++streams_ended[chunk.worker];
  }
  void take(const WorkerExited& event) { exited.emplace(event.worker, event.status); }
  void take(const WorkerNotStarted& event) { not_started.emplace(event.worker, event.error); }
  void take(const HostEmpty&) {
    is_empty = true;
    ++times_empty;
  }
  void take(const HostGone& gone) { FAIL() << gone.why; }

  void run_until_exit_of(const WorkerId& one) {
    run_until([&] { return exited.contains(one) || not_started.contains(one); });
  }
  void run_until_written(const WorkerId& one) {
    run_until([&] { return written[one].find('\n') != std::string::npos; });
  }

  std::string folder = ::testing::TempDir() + "host-link-" + std::to_string(getpid());
  RankCommand command{.program = "/bin/sh",
                      .arguments = {"/bin/sh", "-c", kScript},
                      .environment = {{"PATH", "/usr/bin:/bin"}}};
  ProcessDefaults defaults = current_defaults();
  JobKey key;
  AgentSetup setup;
  std::optional<StoreServer> store;
  std::unique_ptr<HostLink> link;
  std::map<WorkerId, std::string> written;
  std::map<WorkerId, int> streams_ended;
  std::map<WorkerId, ExitStatus> exited;
  std::map<WorkerId, int> not_started;
  bool is_empty = false;
  int times_empty = 0;
};

TEST_P(HostLinkTest, StartsTheNextIncarnationWhenNothingIsLeft) {
  start({worker(0)});
  run_until([&] { return is_empty; });
  EXPECT_EQ(written[worker(0)], "rank 0 of 1\n");
  EXPECT_TRUE(exited.at(worker(0)).ok());
  start({worker(0, 1)}, 1);
  run_until([&] { return is_empty; });
  EXPECT_EQ(written[worker(0, 1)], "rank 0 of 1\n");
  EXPECT_TRUE(exited.at(worker(0, 1)).ok());
  EXPECT_EQ(written[worker(0)], "rank 0 of 1\n") << "nothing of the second";
}

TEST_P(HostLinkTest, IsNotEmptyWhileTheNextIncarnationRuns) {
  start({worker(0)});
  run_until_exit_of(worker(0));
  let_workers("wait");
  start({worker(0, 1)}, 1);
  const int before = times_empty;
  run_until_written(worker(0, 1));
  EXPECT_EQ(times_empty, before) << "an end that was told late is not that of the second";
  link->signal(worker(0, 1), SIGTERM);
  run_until([&] { return is_empty; });
  EXPECT_EQ(times_empty, before + 1);
}

TEST_P(HostLinkTest, StartsWorkersBesideOthersThatRun) {
  let_workers("wait");
  const Assignment first = assign_ranks({worker(0), worker(1)}, 0);
  link->start_workers(first.workers(), address());
  run_until_written(worker(0));
  run_until_written(worker(1));
  link->signal(worker(0), SIGKILL);
  run_until_exit_of(worker(0));
  // The replacement and one more. Worker 1 stays and now has rank 0.
  const Assignment next = reassign_ranks(first, {worker(0, 1), worker(1), worker(2)});
  link->start_workers(std::span(next.workers()).subspan(1), address());
  run_until_written(worker(0, 1));
  run_until_written(worker(2));
  EXPECT_EQ(written[worker(0, 1)], "rank 1 of 3\n");
  EXPECT_EQ(written[worker(2)], "rank 2 of 3\n");
  EXPECT_THAT(exited, ElementsAre(Pair(worker(0), ExitStatus{.signal = SIGKILL})));
}

TEST_P(HostLinkTest, SignalsOneWorkerWithAllThatIsBelowIt) {
  let_workers("wait-in-child");
  start({worker(0), worker(1), worker(2)});
  for (int slot = 0; slot < kSlots; ++slot) run_until_written(worker(slot));
  link->signal(worker(1), SIGTERM);
  run_until_exit_of(worker(1));
  run_until([&] { return streams_ended[worker(1)] == kStreams; });  // its child has ended too
  EXPECT_THAT(exited, ElementsAre(Pair(worker(1), ExitStatus{.signal = SIGTERM})));
  EXPECT_EQ(streams_ended[worker(0)], 0);
}

TEST_P(HostLinkTest, SignalsWhatAWorkerHasLeftInItsGroup) {
  let_workers("leave-child");
  start({worker(0), worker(1)});
  run_until_exit_of(worker(0));
  run_until_exit_of(worker(1));
  link->signal(worker(0), SIGKILL);
  run_until([&] { return streams_ended[worker(0)] == kStreams; });
  EXPECT_EQ(streams_ended[worker(1)], 0);
  EXPECT_FALSE(is_empty);
}

TEST_P(HostLinkTest, HandsASignalOfTheUserToTheHandlerOfOneWorker) {
  let_workers("trap");
  start({worker(0), worker(1)});
  run_until_written(worker(0));
  run_until_written(worker(1));
  link->signal(worker(0), SIGUSR1);
  run_until_exit_of(worker(0));
  EXPECT_EQ(exited.at(worker(0)).code, 7);
  EXPECT_THAT(written[worker(0)], HasSubstr("told"));
  EXPECT_FALSE(exited.contains(worker(1)));
}

TEST_P(HostLinkTest, ASignalToNoWorkerOfItsIsDropped) {
  let_workers("wait");
  link->signal(worker(0), SIGKILL);
  start({worker(0)});
  run_until_written(worker(0));
  link->signal(worker(0, 1), SIGKILL);
  link->signal(worker(2), SIGKILL);
  link->signal(worker(0), SIGTERM);
  run_until_exit_of(worker(0));
  EXPECT_EQ(exited.at(worker(0)).signal, SIGTERM);
}

INSTANTIATE_TEST_SUITE_P(Both, HostLinkTest, ::testing::Values(Kind::local, Kind::remote),
                         [](const auto& kind) {
                           return kind.param == Kind::local ? "Local" : "Remote";
                         });

}  // namespace
}  // namespace hvd::launcher
