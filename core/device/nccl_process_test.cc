// Ranks of the stand-in NCCL in processes of their own: data, the loss of a rank, and versions that
// differ. Every test starts a process that has not used the driver, and forks there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>

#include "core/device/nccl_testing.h"

namespace hvd::device {
namespace {

using test::Rank;

/// What the two processes share besides the communicator.
struct Meeting {
  UniqueId id;
  std::atomic<int> steps;  ///< done by any process; release and acquire
};

/// A rank of a communicator of two processes.
class Process {
 public:
  explicit Process(Meeting& meeting, int number) : meeting_(meeting), rank_(number, number) {
    if (number == 0) {
      test::nccl().check(rank_.call().get_unique_id(&meeting.id), nullptr, "id");
      step();
    }
    await(1);
    CommConfig config;
    config.blocking = 0;
    test::nccl().check(
        rank_.call().comm_init_rank_config(&rank_.comm, 2, meeting.id, number, &config), nullptr,
        "init");
    rank_.finish("init");
  }

  Rank& rank() { return rank_; }
  void step() { meeting_.steps.fetch_add(1, std::memory_order_release); }
  void await(int steps) const {
    test::await([&] { return meeting_.steps.load(std::memory_order_acquire) >= steps; });
  }
  void all_reduce(const test::Floats& x) {
    rank_.check(rank_.call().all_reduce(x.at(), x.at(), 1, NcclType::float32, kNcclSum, rank_.comm,
                                        rank_.stream.handle()));
  }

 private:
  Meeting& meeting_;
  Rank rank_;
};

using Body = std::function<bool(Meeting&, int number)>;

/// Runs `body` in two processes. Ends with 0 if it returns true in rank 0.
[[noreturn]] void in_two_processes(const Body& body) {
  void* const memory =
      ::mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto& meeting = *static_cast<Meeting*>(memory);
  const pid_t child = ::fork();
  bool good = false;
  const std::string error = test::error_of([&] { good = body(meeting, child == 0 ? 1 : 0); });
  if (child == 0) ::_exit(0);
  std::fprintf(stderr, "%s\n", error.c_str());
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::_exit(good ? 0 : 1);
}

class NcclProcesses : public test::StandIn {};

bool sums(Meeting& meeting, int number) {
  Process process(meeting, number);
  const auto x = process.rank().floats({number == 0 ? 2.0f : 5.0f});
  process.all_reduce(x);
  const bool good = x.read(process.rank()).front() == 7;
  process.step();
  process.await(3);
  return good;
}

TEST_F(NcclProcesses, DataGoesFromProcessToProcess) {
  EXPECT_EXIT(in_two_processes(sums), ::testing::ExitedWithCode(0), "");
}

/// Rank 1 ends without a word; rank 0 sees it, and its collective waits until it aborts.
bool loses_a_rank(Meeting& meeting, int number) {
  Process process(meeting, number);
  Rank& rank = process.rank();
  const auto x = rank.floats({1});
  if (number == 1) {
    process.await(2);
    ::raise(SIGKILL);
  }
  process.all_reduce(x);
  process.step();
  ::siginfo_t ended{};
  ::waitid(P_ALL, 0, &ended, WEXITED);  // a zombie has no process to be signalled
  NcclResult state = NcclResult::success;
  test::await([&] {
    rank.call().comm_get_async_error(rank.comm, &state);
    return state != NcclResult::success;
  });
  const bool waited = !rank.stream.idle();
  rank.check(rank.call().comm_abort(rank.comm));
  test::await([&] { return rank.stream.idle(); });
  return waited && state == NcclResult::remote_error;
}

TEST_F(NcclProcesses, AKilledRankIsReportedAndACollectiveWaitsUntilTheAbort) {
  EXPECT_EXIT(in_two_processes(loses_a_rank), ::testing::ExitedWithCode(0), "");
}

bool has_another_version(Meeting& meeting, int number) {
  if (number == 1) ::setenv("FAKE_NCCL_VERSION", "22705", 1);
  const Process process(meeting, number);
  return true;
}

TEST_F(NcclProcesses, VersionsThatDifferAreAnErrorOfInit) {
  EXPECT_EXIT(in_two_processes(has_another_version), ::testing::ExitedWithCode(1),
              "init: NCCL 2.28.9 failed with invalid usage .*its last message: mismatched versions "
              "of NCCL in rank 0 and rank 1");
}

}  // namespace
}  // namespace hvd::device
