// The loss of a rank while GPUs work: ranks are processes. Every test starts a process that has not
// used the driver, and forks there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "core/capi/context.h"
#include "core/capi/gpu_testing.h"

namespace hvd {
namespace {

using device::test::await;
using device::test::error_of;
using device::test::Variable;
using test::gpu_job;
using test::GpuJobOptions;
using test::GpuRank;
using test::GpuRequest;

/// What the processes share besides the job.
struct Shared {
  char root_address[hvd::kMaxRendezvousBytes + 1];
  std::atomic<bool> has_address;  ///< release and acquire
  std::atomic<int> steps;         ///< done by any process; release and acquire

  void step() { steps.fetch_add(1, std::memory_order_release); }
  void await_steps(int count) const {
    await([=, this] { return steps.load(std::memory_order_acquire) >= count; });
  }
};

enum class Sharing : unsigned char { none, one_gpu };

/// A rank of a job of `size` processes. Of more than two: process set 1 has ranks 0 and 1.
class Process {
 public:
  Process(Shared& shared, int rank, int size = 2, const Environment& environment = {},
          Sharing sharing = Sharing::none)
      : shared_(shared),
        gpu_(rank, sharing == Sharing::one_gpu ? 0 : rank),
        context_(std::make_unique<Context>(environment, 1,
                                           StartOptions{.process_sets = sets(size),
                                                        .world = RankAndSize{rank, size},
                                                        .rendezvous = meeting()})) {}

  GpuRank& gpu() { return gpu_; }
  Context& context() { return *context_; }
  std::shared_ptr<Completion> sum(const char* name, const GpuRank::Tensor<float>& x,
                                  int32_t process_set = 0) {
    GpuRequest request(HVD_ALLREDUCE, name);
    request.request.process_set = process_set;
    request.add(gpu_, x.data(), x.data(), HVD_FLOAT32, {static_cast<int64_t>(x.count())});
    request.request.owner = &released;
    request.request.release = [](void* count) { ++*static_cast<std::atomic<int>*>(count); };
    return context_->submit(request.request, true);
  }
  void end() { context_.reset(); }

  std::atomic<int> released{0};

 private:
  static std::vector<std::vector<int>> sets(int size) {
    return size > 2 ? std::vector<std::vector<int>>{{0, 1}} : std::vector<std::vector<int>>{};
  }
  RendezvousFunction meeting() {
    return [this](const std::string&, const std::string& root_address) {
      if (!root_address.empty()) {
        root_address.copy(shared_.root_address, kMaxRendezvousBytes);
        shared_.has_address.store(true, std::memory_order_release);
      }
      await([this] { return shared_.has_address.load(std::memory_order_acquire); });
      return std::string(shared_.root_address);
    };
  }

  Shared& shared_;
  GpuRank gpu_;
  std::unique_ptr<Context> context_;
};

using Body = std::function<bool(Shared&, int rank)>;

/// Runs `body` in `ranks` processes. Ends with 0 if it returns true in rank 0.
[[noreturn]] void in_processes(int ranks, const Body& body) {
  void* const memory =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto& shared = *static_cast<Shared*>(memory);
  std::vector<pid_t> others;
  int rank = 0;
  for (int other = 1; other < ranks && rank == 0; ++other) {
    others.push_back(::fork());
    if (others.back() == 0) rank = other;
  }
  bool good = false;
  const std::string error = error_of([&] { good = body(shared, rank); });
  std::fprintf(stderr, "%s\n", error.c_str());
  if (rank != 0) ::_exit(0);
  for (const pid_t other : others) {
    ::kill(other, SIGKILL);
    ::waitpid(other, nullptr, 0);
  }
  ::_exit(good ? 0 : 1);
}

#define EXPECT_TRUE_IN_PROCESSES(ranks, body) \
  EXPECT_EXIT(in_processes(ranks, body), ::testing::ExitedWithCode(0), "")
#define EXPECT_TRUE_IN_TWO_PROCESSES(body) EXPECT_TRUE_IN_PROCESSES(2, body)

class GpuLoss : public device::test::StandIn {};

bool sums(Shared& shared, int rank) {
  Process process(shared, rank);
  auto x = process.gpu().tensor<float>({rank == 0 ? 2.0f : 5.0f});
  const auto done = process.sum("x", x);
  process.context().wait(*done);
  done->result->delay(process.gpu().framework().stream());
  const bool good = x.read().front() == 7;
  process.end();
  return good && process.released == 1;
}

TEST_F(GpuLoss, DataGoesFromProcessToProcess) { EXPECT_TRUE_IN_TWO_PROCESSES(sums); }

// ---- processes that read the memory of each other

bool reads_memory(Shared& shared, int rank, int size) {
  Process process(shared, rank, size, {}, Sharing::one_gpu);
  const size_t elements = size_t{3} << 20;  // more than one round
  std::vector<float> ones(elements, 1.0f);
  auto x = process.gpu().tensor<float>(ones);
  bool good = true;
  for (const float expected : {static_cast<float>(size), static_cast<float>(size * size)}) {
    const auto done = process.sum("x", x);
    process.context().wait(*done);
    good &=
        done->handle.outcome().text.empty() && x.read() == std::vector<float>(elements, expected);
  }
  good &= process.context().counters().batches_by[static_cast<size_t>(Mover::ipc)] == 2;
  shared.step();
  shared.await_steps(size);
  process.end();
  return good;
}

TEST_F(GpuLoss, ProcessesOnOneGpuReadTheMemoryOfEachOther) {
  for (const int size : {2, 4})
    EXPECT_TRUE_IN_PROCESSES(
        size, [=](Shared& shared, int rank) { return reads_memory(shared, rank, size); });
}

/// Rank 1 never packs. It is killed while the others wait for it.
bool loses_a_rank_that_others_read(Shared& shared, int rank) {
  Process process(shared, rank, 3, {}, Sharing::one_gpu);
  GpuRank& gpu = process.gpu();
  auto x = gpu.tensor<float>(std::vector<float>(1000, 1.0f)), y = gpu.tensor<float>({1});
  process.context().wait(*process.sum("x", x));
  if (rank == 1) gpu.framework().queue("for ever", {}, [] { await([] { return false; }); });
  const auto pending = process.sum("x", x);
  shared.step();
  shared.await_steps(rank == 1 ? 3 : 2);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the others have packed by then
  if (rank == 1) ::raise(SIGKILL);
  shared.step();
  process.context().wait(*pending);
  const Outcome& outcome = pending->handle.outcome();
  process.end();
  gpu.framework().finish();
  nccl::require_usable_gpu();
  return outcome.code == Code::peer_lost && outcome.rank == 1 && process.released == 2;
}

TEST_F(GpuLoss, NoGpuWaitsForAProcessThatIsLost) {
  EXPECT_TRUE_IN_PROCESSES(3, loses_a_rank_that_others_read);
}

struct AfterLoss {
  std::shared_ptr<Completion> launched;  ///< both GPUs work on it
  std::shared_ptr<Completion> pending;   ///< only rank 0 has submitted it
};

/// Reduces `x`, and kills rank 1 meanwhile. Returns on rank 0, which reduces `y`, too.
AfterLoss lose_rank_1(Process& process, Shared& shared, int rank, const GpuRank::Tensor<float>& x,
                      const GpuRank::Tensor<float>& y) {
  if (rank == 1)
    process.gpu().framework().queue("for ever", {}, [] { await([] { return false; }); });
  const auto launched = process.sum("x", x);
  process.context().wait(*launched);
  shared.step();
  shared.await_steps(rank == 1 ? 3 : 2);
  if (rank == 1) ::raise(SIGKILL);
  const auto pending = process.sum("y", y);
  shared.step();  // rank 1 is killed now
  return {launched, pending};
}

bool loses_a_rank(Shared& shared, int rank) {
  Process process(shared, rank);
  GpuRank& gpu = process.gpu();
  auto x = gpu.tensor<float>({1}), y = gpu.tensor<float>({1});
  const auto [launched, pending] = lose_rank_1(process, shared, rank, x, y);
  const bool was_reached = launched->result->reached();
  process.context().wait(*pending);
  const Outcome& outcome = pending->handle.outcome();
  await([&] { return process.released.load() == 2; });  // after the abort
  void* const stream = gpu.framework().stream();
  const std::string lost = error_of([&] { launched->result->delay(stream); });
  process.end();
  gpu.framework().finish();
  return !was_reached && launched->result->reached() && lost.starts_with("rank 1 is lost") &&
         error_of([&] { launched->result->delay(stream); }) == lost &&
         outcome.code == Code::peer_lost && outcome.rank == 1 &&
         outcome.text.starts_with("allreduce \"y\": rank 1 is lost");
}

TEST_F(GpuLoss, AKilledRankEndsEveryOperationAndTheWorkOfTheGpuIsAborted) {
  EXPECT_TRUE_IN_TWO_PROCESSES(loses_a_rank);
}

/// Rank 2 is killed. The work of the set is queued behind that of all ranks, which waits for it.
bool loses_a_rank_of_two_groups(Shared& shared, int rank) {
  Process process(shared, rank, 3);
  GpuRank& gpu = process.gpu();
  auto x = gpu.tensor<float>({1}), y = gpu.tensor<float>({1}), z = gpu.tensor<float>({1});
  if (rank == 2) gpu.framework().queue("for ever", {}, [] { await([] { return false; }); });
  process.context().wait(*process.sum("x", x));
  if (rank != 2) process.context().wait(*process.sum("y", y, 1));
  shared.step();
  shared.await_steps(rank == 2 ? 4 : 3);
  if (rank == 2) ::raise(SIGKILL);
  const auto pending = process.sum("z", z);
  shared.step();  // rank 2 is killed now
  process.context().wait(*pending);
  process.end();
  if (process.released != 3) ::syscall(SYS_exit_group, 1);  // threads hang
  gpu.framework().finish();
  return true;
}

TEST_F(GpuLoss, WorkOfOneGroupBehindThatOfAnotherIsAborted) {
  EXPECT_TRUE_IN_PROCESSES(3, loses_a_rank_of_two_groups);
}

/// Rank 1 stays in the job until rank 0 has left.
bool leaves_first(Shared& shared, int rank) {
  Process process(shared, rank);
  auto x = process.gpu().tensor<float>({1});
  process.context().wait(*process.sum("x", x));
  if (rank == 1) shared.await_steps(1);
  process.context().shutdown();
  process.end();
  shared.step();
  process.gpu().framework().finish();
  nccl::require_usable_gpu();
  return true;
}

/// Rank 1, which is on another host, is killed while rank 0 ends its communicator.
bool is_lost_while_closing(Shared& shared, int rank) {
  if (rank == 1) ::setenv("FAKE_NCCL_FAIL", "ncclCommFinalize=hang", 1);
  Process process(shared, rank, 2, {{"HOROVOD_HOSTNAME", rank == 0 ? "here" : "there"}});
  auto x = process.gpu().tensor<float>({1});
  const auto done = process.sum("x", x);
  process.context().wait(*done);
  done->result->delay(process.gpu().framework().stream());
  x.read();
  std::thread killer;
  if (rank == 1)
    killer = std::thread([&shared] {
      shared.await_steps(1);
      ::raise(SIGKILL);
    });
  std::thread later([&shared] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // rank 0 is closing by then
    shared.step();
  });
  process.context().shutdown();
  process.end();
  later.join();
  process.gpu().framework().finish();
  nccl::require_usable_gpu();
  if (killer.joinable()) killer.join();
  return true;
}

TEST_F(GpuLoss, ARankOfAnotherHostThatIsLostWhileTheJobClosesCostsNoDeadline) {
  EXPECT_TRUE_IN_TWO_PROCESSES(is_lost_while_closing);
}

TEST_F(GpuLoss, ARankThatLeavesFirstDoesNotWaitForTheOthers) {
  EXPECT_TRUE_IN_TWO_PROCESSES(leaves_first);
}

/// NCCL cannot be ended any more.
bool loses_a_rank_and_nccl(Shared& shared, int rank) {
  ::setenv("FAKE_NCCL_FAIL", "ncclCommRevoke=hang,ncclCommAbort=hang", 1);
  Process process(shared, rank);
  GpuRank& gpu = process.gpu();
  auto x = gpu.tensor<float>({1}), y = gpu.tensor<float>({1});
  const auto [launched, pending] = lose_rank_1(process, shared, rank, x, y);
  process.context().wait(*pending);  // does not wait for NCCL
  const bool has_error = pending->handle.outcome().code == Code::peer_lost;
  // Without the checks of a sanitizer at exit: the thread that ends NCCL is left behind.
  ::syscall(SYS_exit_group, has_error && process.released == 1 ? 0 : 1);
  return false;
}

TEST_F(GpuLoss, AnErrorDoesNotWaitForAnAbortThatHangs) {
  EXPECT_TRUE_IN_TWO_PROCESSES(loses_a_rank_and_nccl);
}

bool has_another_version(Shared& shared, int rank) {
  if (rank == 1) ::setenv("FAKE_NCCL_VERSION", "22705", 1);
  Process process(shared, rank);
  auto x = process.gpu().tensor<float>({1});
  const auto failed = process.sum("x", x);
  process.context().wait(*failed);
  process.gpu().framework().finish();
  return failed->handle.outcome().text.find(
             "rank 0 has NCCL 2.28.9, but rank 1 has NCCL 2.27.5: all ranks need the same "
             "version") != std::string::npos;
}

TEST_F(GpuLoss, VersionsOfNcclThatDifferAreNamedWithTheirRanks) {
  EXPECT_TRUE_IN_TWO_PROCESSES(has_another_version);
}

// ---- ranks as threads

/// The allocation of an output fails on rank 1 while all GPUs work on a batch.
void fail_on_one_rank(const GpuJobOptions& options, std::atomic<int>& released) {
  gpu_job(2, options, [&](GpuRank& rank) {
    auto x = rank.tensor<float>({1});
    std::atomic<bool> open{false};
    if (rank.rank() == 1)
      rank.framework().queue("gate", {}, [&] { await([&] { return open.load(); }); });
    GpuRequest sum(HVD_ALLREDUCE, "x");
    sum.add(rank, x.data(), x.data(), HVD_FLOAT32, {1});
    sum.request.owner = &released;
    sum.request.release = [](void* count) { ++*static_cast<std::atomic<int>*>(count); };
    const auto launched = rank.submit(sum.request);
    rank.thread().wait(launched->handle);
    GpuRequest gather(HVD_ALLGATHER, "y");
    gather.add(rank, x.data(), x.data(), HVD_FLOAT32, {1});
    gather.request.outputs = nullptr;
    gather.request.allocate = [](void*, int32_t, const int64_t*, int32_t, hvd_tensor*) {
      return "no memory";
    };
    const auto failed = rank.submit(gather.request);
    rank.thread().wait(failed->handle);
    EXPECT_THAT(failed->handle.outcome().text,
                ::testing::HasSubstr("output 0 of shape [2] could not be allocated: no memory"));
    open.store(true);
    rank.framework().finish();
    await([&] { return released.load() == 2; });
  });
}

TEST_F(GpuLoss, AnOutputThatCannotBeAllocatedEndsTheJobAndTheLoans) {
  std::atomic<int> released{0};
  fail_on_one_rank(test::with(GpuOperationsChoice::nccl), released);
}

/// A child of fork() ends a point that has the last reference to the GPU of its parent. It must not
/// use the driver, nor a mutex that another thread of the parent may have held.
[[noreturn]] void ends_a_point_in_a_child() {
  std::shared_ptr<const DevicePoint> point;
  {
    nccl::Devices devices({}, GpuOperationsChoice::host);
    const auto gpu = devices.use(0);
    const nccl::OnGpu current(gpu->context());
    point = gpu->point(gpu->stream());
    await([&] { return point->reached(); });
  }
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("FAKE_CUDA_FAIL", "cuDevicePrimaryCtxRelease_v2=hang", 1);
    ::alarm(20);
    point.reset();
    ::_exit(0);
  }
  int status = 1;
  ::waitpid(child, &status, 0);
  point.reset();
  ::_exit(status == 0 ? 0 : 1);
}

TEST_F(GpuLoss, AForkedChildLeavesTheGpuOfItsParentAlone) {
  EXPECT_EXIT(ends_a_point_in_a_child(), ::testing::ExitedWithCode(0), "");
}

/// The work that is left on the GPU could use memory of a later job.
[[noreturn]] void uses_a_stuck_gpu() {
  nccl::Devices devices({}, GpuOperationsChoice::host);
  const auto gpu = devices.use(0);
  const nccl::OnGpu current(gpu->context());
  const auto for_ever = [](void*) { await([] { return false; }); };
  device::test::stand_in<decltype(fake_cuda_enqueue)>("fake_cuda_enqueue")(
      gpu->stream(), "for ever", nullptr, 0, for_ever, nullptr);
  {
    const nccl::Endings missed({.gpu = gpu}, nccl::EndingKind::abort,
                               {.deadline = std::chrono::milliseconds(1)});
  }
  std::fprintf(stderr, "use: %s\n", error_of([&] { devices.use(0); }).c_str());
  ::syscall(SYS_exit_group, 0);  // without the checks of a sanitizer: a thread hangs
  ::abort();
}

/// The abort of NCCL hangs, and so does the thread that trains: it waits for its GPU.
[[noreturn]] void loses_nccl_in_an_elastic_job() {
  ::setenv("FAKE_NCCL_FAIL", "ncclCommRevoke=hang,ncclCommAbort=hang", 1);
  GpuJobOptions options = test::with(GpuOperationsChoice::nccl);
  options.nccl.end_timeout = std::chrono::milliseconds(50);
  options.nccl.exits_if_stuck = true;
  std::atomic<int> released{0};
  fail_on_one_rank(options, released);
  ::_exit(0);
}

TEST_F(GpuLoss, AProcessOfAnElasticJobWhoseGpuIsStuckEndsWithACodeOfItsOwn) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "a sanitizer gives the process a code of its own";
#endif
  EXPECT_EXIT(loses_nccl_in_an_elastic_job(), ::testing::ExitedWithCode(nccl::kStuckGpuExitCode),
              "NCCL or the driver has not ended the GPU work of this process.*exit code 75");
}

TEST_F(GpuLoss, AProcessWhoseGpuWorkWasNotEndedDoesNotUseTheGpuAgain) {
  EXPECT_EXIT(uses_a_stuck_gpu(), ::testing::ExitedWithCode(0),
              "use: .*This process cannot use the GPU any more");
}

}  // namespace
}  // namespace hvd
