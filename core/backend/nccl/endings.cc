#include "core/backend/nccl/endings.h"

#include <fmt/core.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/start_thread.h"
#include "core/device/messages.h"

namespace hvd::nccl {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{1};

/// The deadline that an ending of this process has missed; 0: none has. Release and acquire.
std::atomic<std::chrono::nanoseconds::rep> missed_deadline{0};

}  // namespace

/// Shared with the threads, which may outlive the owner.
struct Endings::State {
  State(Remains remains_, EndingKind kind, const EndingOptions& options_)
      : options(options_), remains(std::move(remains_)), aborts(kind == EndingKind::abort) {}

  const EndingOptions options;
  const std::chrono::steady_clock::time_point until =
      std::chrono::steady_clock::now() + options.deadline;
  Remains remains;
  std::atomic<bool> aborts;  ///< release by the owner, acquire by the threads
  std::mutex mutex{};
  std::condition_variable changed{};
  bool done = false;     ///< under the mutex
  std::thread thread{};  ///< used by the owner
  std::thread watch{};   ///< used by the owner; with EndingOptions::ends_process

  void run() noexcept {
    guarded([this] { end_all(); });
    const std::lock_guard lock(mutex);
    done = true;
    changed.notify_all();
  }

  /// Returns whether all has ended.
  bool await_deadline() {
    std::unique_lock lock(mutex);
    return changed.wait_until(lock, until, [this] { return done; });
  }

  void end_process_unless_done() {
    if (await_deadline()) return;
    log(LogLevel::error, fmt::format("{}. It ends with exit code {}",
                                     device::stuck_gpu_text(options.deadline), kStuckGpuExitCode));
    ::_exit(kStuckGpuExitCode);  // handlers and destructors would wait for the GPU
  }

  template <class Body>
  static void guarded(const Body& body) noexcept {
    try {
      body();
    } catch (const std::exception& error) {  // the GPU has failed: nothing runs on it any more
      log(LogLevel::error, std::string("while GPU work was ended: ") + error.what());
    }
  }

  /// Each communicator has a thread: NCCL may wait for its work, which may be queued behind that of
  /// another one.
  void end_all() {
    std::vector<std::jthread> threads;
    for (const device::CommHandle handle : remains.communicators)
      threads.emplace_back([this, handle] { guarded([=, this] { end(handle); }); });
    threads.clear();  // joins them
    const OnGpu current(remains.gpu->context());
    while (!remains.gpu->idle()) pause();
    remains.movers.clear();
  }

  /// Errors are ignored: nothing else can be done with the communicator.
  void end(device::CommHandle handle) {
    const OnGpu current(remains.gpu->context());
    const device::NcclTable& call = remains.nccl->call();
    if (finalize(handle)) {
      call.comm_destroy(handle);
      return;
    }
    if (call.comm_revoke != nullptr) call.comm_revoke(handle, 0);
    call.comm_abort(handle);
  }

  /// Returns false if it must be aborted: it may wait for a rank that is lost.
  bool finalize(device::CommHandle handle) {
    if (aborts.load(std::memory_order_acquire)) return false;
    const device::NcclTable& call = remains.nccl->call();
    call.comm_finalize(handle);
    device::NcclResult state = device::NcclResult::in_progress;
    while (call.comm_get_async_error(handle, &state) == device::NcclResult::success &&
           state == device::NcclResult::in_progress) {
      if (aborts.load(std::memory_order_acquire)) return false;
      pause();
    }
    return state == device::NcclResult::success;
  }

  void pause() {
    std::unique_lock lock(mutex);
    changed.wait_for(lock, kBetweenLooks);
  }
};

Endings::Endings(Remains remains, EndingKind kind, const EndingOptions& options)
    : state_(std::make_shared<State>(std::move(remains), kind, options)) {
  state_->thread = start_thread([state = state_] { state->run(); });
  if (options.ends_process)
    state_->watch = start_thread([state = state_] { state->end_process_unless_done(); });
}

bool Endings::is_over() const {
  const std::lock_guard lock(state_->mutex);
  return state_->done || std::chrono::steady_clock::now() >= state_->until;
}

void Endings::abort() { state_->aborts.store(true, std::memory_order_release); }

Endings::~Endings() {
  if (state_->watch.joinable()) state_->watch.join();  // does not return after the deadline
  if (state_->await_deadline()) {
    state_->thread.join();
  } else {
    const std::chrono::nanoseconds deadline = state_->options.deadline;
    state_->thread.detach();
    missed_deadline.store(deadline.count(), std::memory_order_release);
    log(LogLevel::error, device::stuck_gpu_text(deadline));
  }
}

void require_usable_gpu() {
  const std::chrono::nanoseconds missed(missed_deadline.load(std::memory_order_acquire));
  if (missed.count() > 0) fail(Code::invalid_argument, device::stuck_gpu_text(missed));
}

}  // namespace hvd::nccl
