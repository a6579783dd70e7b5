// How long the end of GPU work may take, and what follows if it takes longer, fails, or has no
// thread. A GPU that cannot be used any more is remembered, so most tests run in a process of their
// own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <system_error>
#include <thread>

#include "core/backend/nccl/devices.h"
#include "core/backend/nccl/endings.h"
#include "core/capi/gpu_testing.h"

namespace hvd {
namespace {

using device::test::await;
using device::test::error_of;
using nccl::EndingKind;
using nccl::EndingOptions;
using nccl::Endings;
using std::chrono_literals::operator""h;
using std::chrono_literals::operator""ms;
using ::testing::ExitedWithCode;

class GpuEndings : public device::test::StandIn {};

#ifdef __SANITIZE_THREAD__
constexpr bool kChangesExitCodes = true;  // if a process ends while its threads run
#else
constexpr bool kChangesExitCodes = false;
#endif

/// Work that the runtime has queued on its GPU: it ends when it is opened.
class QueuedWork {
 public:
  QueuedWork() {
    const nccl::OnGpu current(gpu_->context());
    const auto run = [](void* self) {
      await([=] { return static_cast<QueuedWork*>(self)->is_open_.load(); });
    };
    device::test::stand_in<decltype(fake_cuda_enqueue)>("fake_cuda_enqueue")(gpu_->stream(), "gate",
                                                                             nullptr, 0, run, this);
  }
  void open() { is_open_.store(true); }
  nccl::Remains remains() const { return {.gpu = gpu_}; }

 private:
  nccl::Devices devices_{{}, GpuOperationsChoice::host};
  const std::shared_ptr<nccl::Gpu> gpu_ = devices_.use(0);
  std::atomic<bool> is_open_{false};
};

/// Long after every deadline of the tests that is meant to be missed.
void let_deadlines_pass() { std::this_thread::sleep_for(50ms); }

/// Ends without the checks of a sanitizer: threads are left behind.
[[noreturn]] void exit_with(bool good) {
  std::fprintf(stderr, "%s\n", error_of([] { nccl::require_usable_gpu(); }).c_str());
  ::syscall(SYS_exit_group, good ? 0 : 1);
  ::abort();
}
bool is_usable() {
  return error_of([] { nccl::require_usable_gpu(); }).empty();
}

[[noreturn]] void aborts_late() {
  QueuedWork work;
  bool was_over = false;
  {
    Endings ending(work.remains(), EndingKind::together, {.deadline = 1ms, .patience = 1h});
    let_deadlines_pass();
    was_over = ending.is_over();
    ending.abort();
    await([&] { return ending.is_over(); });
  }
  exit_with(!was_over && !is_usable());
}

TEST_F(GpuEndings, TheDeadlineOfAnAbortBeginsWithTheAbort) {
  EXPECT_EXIT(aborts_late(), ExitedWithCode(0), "has not ended the GPU work .* within 0 s");
}

/// Nothing was lost: other ranks may be late.
[[noreturn]] void ends_together_late(std::chrono::nanoseconds patience) {
  QueuedWork work;
  const bool leaves = patience < 1h;
  {
    Endings ending(work.remains(), EndingKind::together,
                   {.deadline = 1ms, .patience = patience, .ends_process = true});
    let_deadlines_pass();
    if (!leaves) work.open();
  }
  exit_with(is_usable() != leaves);
}

TEST_F(GpuEndings, AnEndingTogetherThatIsLateDoesNotEndTheProcess) {
  EXPECT_EXIT(ends_together_late(1h), ExitedWithCode(0), "");
  EXPECT_EXIT(ends_together_late(1ms), ExitedWithCode(0), "cannot use the GPU any more");
}

[[noreturn]] void loses_a_rank_after_the_patience() {
  QueuedWork work;
  Endings ending(work.remains(), EndingKind::together,
                 {.deadline = 1ms, .patience = 1ms, .ends_process = true});
  await([&] { return ending.is_over(); });
  ending.abort();
  await([] { return false; });  // as a thread that waits for its GPU
  ::abort();
}

TEST_F(GpuEndings, AnAbortThatIsLateEndsTheProcessOfAnElasticJob) {
  if (kChangesExitCodes) GTEST_SKIP();
  EXPECT_EXIT(loses_a_rank_after_the_patience(), ExitedWithCode(nccl::kStuckGpuExitCode),
              "It ends with exit code 75");
}

// ---- failures

/// Tells when it is destroyed: then the memory of tensors is free.
class Lending final : public nccl::Mover {
 public:
  explicit Lending(bool& is_over) : is_over_(is_over) {}
  ~Lending() override { is_over_ = true; }
  Progress advance() override { return Progress::waiting; }
  std::shared_ptr<const DevicePoint> result() const override { return nullptr; }
  void cancel() override {}

 private:
  bool& is_over_;
};

/// The driver reports that a kernel has failed.
[[noreturn]] void fails_to_end(EndingKind kind, bool ends_process) {
  QueuedWork work;
  work.open();
  bool is_free = false;
  auto remains = work.remains();
  remains.movers.push_back(std::make_unique<Lending>(is_free));
  {
    const device::test::Variable fails("FAKE_CUDA_FAIL", "cuStreamQuery=719");
    const Endings ending(std::move(remains), kind, {.ends_process = ends_process});
    await([&] { return ending.is_over(); });
  }
  exit_with(!is_free);
}

TEST_F(GpuEndings, AnEndingThatHasFailedLeavesTheMemoryOfTensorsAlone) {
  const char* const text = "could not be ended .*cuStreamQuery.* cannot use the GPU any more";
  EXPECT_EXIT(fails_to_end(EndingKind::abort, false), ExitedWithCode(0), text);
  EXPECT_EXIT(fails_to_end(EndingKind::together, true), ExitedWithCode(0), text);
  if (kChangesExitCodes) return;
  EXPECT_EXIT(fails_to_end(EndingKind::abort, true), ExitedWithCode(nccl::kStuckGpuExitCode), text);
}

/// Lets the start of thread number `failing` fail, from 1.
EndingOptions without_thread(int failing, bool ends_process) {
  const auto started = std::make_shared<int>(0);
  return {.ends_process = ends_process, .before_thread = [=] {
            if (++*started == failing)
              throw std::system_error(EAGAIN, std::generic_category(), "no thread");
          }};
}

[[noreturn]] void ends_without_a_thread() {
  QueuedWork work;
  work.open();
  bool is_free = false;
  auto remains = work.remains();
  remains.movers.push_back(std::make_unique<Lending>(is_free));
  { const Endings ending(std::move(remains), EndingKind::abort, without_thread(1, false)); }
  exit_with(!is_free);
}

TEST_F(GpuEndings, WithoutAThreadTheEndingHasFailed) {
  EXPECT_EXIT(ends_without_a_thread(), ExitedWithCode(0), "could not be ended .no thread");
}

TEST_F(GpuEndings, WithoutAThreadThatWatchesTheEndingStillEnds) {
  QueuedWork work;
  work.open();
  { const Endings ending(work.remains(), EndingKind::abort, without_thread(2, true)); }
  EXPECT_TRUE(is_usable());
}

[[noreturn]] void misses_the_deadline_without_a_watch() {
  QueuedWork work;
  auto options = without_thread(2, true);
  options.deadline = 1ms;
  { const Endings ending(work.remains(), EndingKind::abort, options); }
  ::_exit(0);
}

TEST_F(GpuEndings, WithoutAThreadThatWatchesTheOwnerEndsTheProcess) {
  if (kChangesExitCodes) GTEST_SKIP();
  EXPECT_EXIT(misses_the_deadline_without_a_watch(), ExitedWithCode(nccl::kStuckGpuExitCode), "");
}

/// A communicator of one rank.
device::CommHandle communicator(const nccl::Devices& devices) {
  const nccl::OnGpu current(devices.gpu()->context());
  const auto nccl = devices.nccl();
  device::UniqueId id{};
  nccl->check(nccl->call().get_unique_id(&id), nullptr, "ncclGetUniqueId");
  nccl::Communicator made(nccl, {.id = id, .deadline = 1h});
  await([&] { return made.settled(); });
  return made.handle();
}

TEST_F(GpuEndings, CommunicatorsThatHaveNoThreadEndOneAfterTheOther) {
  nccl::Devices devices({}, GpuOperationsChoice::nccl);
  const auto gpu = devices.use(0);
  for (const int failing : {2, 3}) {
    const std::vector<device::CommHandle> made{communicator(devices), communicator(devices)};
    {
      const Endings ending({.gpu = gpu, .nccl = devices.nccl(), .communicators = made},
                           EndingKind::abort, without_thread(failing, false));
    }
    EXPECT_TRUE(is_usable());
    EXPECT_DEATH(devices.nccl()->call().comm_abort(made[0]), "there is no such communicator");
    EXPECT_DEATH(devices.nccl()->call().comm_abort(made[1]), "there is no such communicator");
  }
}

}  // namespace
}  // namespace hvd
