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

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kBetweenLooks{1};

/// An ending that has not ended its work, which the GPU may still do.
struct LeftBehind {
  std::string why{};
  std::shared_ptr<const void> remains{};
};
/// The first one that this process has; nullptr: none. Never freed. Release and acquire.
std::atomic<const LeftBehind*> left_behind{nullptr};

/// Runs `body`. Returns the text of its exception; empty: it has thrown none.
template <class Body>
std::string failure_of(const Body& body) noexcept {
  try {
    body();
    return "";
  } catch (const std::exception& error) {
    return *error.what() == '\0' ? "unknown error" : error.what();
  }
}

void log_failure(const std::string& failure) {
  if (!failure.empty()) log(LogLevel::error, "while GPU work was ended: " + failure);
}

}  // namespace

/// Shared with the threads, which may outlive the owner.
struct Endings::State {
  State(Remains remains_, EndingKind kind, EndingOptions options_)
      : options(std::move(options_)),
        remains(std::move(remains_)),
        aborts(kind == EndingKind::abort),
        until(steady_clock::now() + (aborts ? options.deadline : options.patience)) {}

  const EndingOptions options;
  Remains remains;
  std::mutex mutex{};  ///< guards the following
  std::condition_variable changed{};
  bool aborts;
  steady_clock::time_point until;
  bool has_stopped = false;  ///< all has ended, or `failure` says why not
  std::string failure{};
  bool is_left = false;  ///< the owner has given it up
  std::thread thread{};  ///< used by the owner
  std::thread watch{};   ///< used by the owner; with EndingOptions::ends_process

  template <class Body>
  std::thread start(Body body) const {
    options.before_thread();
    return start_thread(std::move(body));
  }

  // ---- the owner, and the thread that watches

  bool is_over() const { return has_stopped || steady_clock::now() >= until; }

  /// Blocks until is_over() or `is_left`. abort() may move `until` to an earlier time.
  void await_end(std::unique_lock<std::mutex>& lock) {
    while (!is_left && !is_over()) {
      const auto next = until;
      changed.wait_until(lock, next);
    }
  }

  /// Why the GPU cannot be used any more; empty: all has ended.
  std::string why_unusable() const {
    if (!has_stopped) return device::stuck_gpu_text(aborts ? options.deadline : options.patience);
    return failure.empty() ? "" : device::failed_ending_text(failure);
  }

  [[noreturn]] static void end_process(const std::string& why) {
    log(LogLevel::error, fmt::format("{}. It ends with exit code {}", why, kStuckGpuExitCode));
    ::_exit(kStuckGpuExitCode);  // handlers and destructors would wait for the GPU
  }
  /// An ending together that is late ends no process: nothing was lost.
  void end_process_if_stuck() {
    std::unique_lock lock(mutex);
    while (true) {
      await_end(lock);
      const std::string why = why_unusable();
      if (is_left || why.empty()) return;
      if (aborts) end_process(why);
      changed.wait(lock, [this] { return is_left || aborts; });
    }
  }

  /// Waits for the end. Returns why the GPU cannot be used any more.
  std::string give_up() {
    std::unique_lock lock(mutex);
    await_end(lock);
    const std::string why = why_unusable();
    if (aborts && options.ends_process && !why.empty()) end_process(why);
    is_left = true;
    changed.notify_all();
    return why;
  }

  // ---- the threads that end

  void run() noexcept {
    const std::string why = failure_of([this] { end_all(); });
    log_failure(why);
    stop(why);
  }
  void stop(const std::string& why) {
    const std::lock_guard lock(mutex);
    has_stopped = true;
    failure = why;
    changed.notify_all();
  }

  /// Each communicator has a thread: NCCL may wait for its work, which may be queued behind that of
  /// another one. Without threads they end one after the other, and may miss the deadline.
  void end_all() {
    std::vector<std::thread> threads;
    threads.reserve(remains.communicators.size());
    for (const device::CommHandle handle : remains.communicators) {
      const auto end_one = [this, handle] { log_failure(failure_of([&] { end(handle); })); };
      const std::string why = failure_of([&] { threads.push_back(start(end_one)); });
      log_failure(why);
      if (!why.empty()) end_one();
    }
    for (std::thread& one : threads) one.join();
    const OnGpu current(remains.gpu->context());
    while (!remains.gpu->idle()) pause();
    remains.movers.clear();
    remains.memory.reset();
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
    if (must_abort()) return false;
    const device::NcclTable& call = remains.nccl->call();
    call.comm_finalize(handle);
    device::NcclResult state = device::NcclResult::in_progress;
    while (call.comm_get_async_error(handle, &state) == device::NcclResult::success &&
           state == device::NcclResult::in_progress) {
      if (must_abort()) return false;
      pause();
    }
    return state == device::NcclResult::success;
  }

  bool must_abort() {
    const std::lock_guard lock(mutex);
    return aborts;
  }
  void pause() {
    std::unique_lock lock(mutex);
    changed.wait_for(lock, kBetweenLooks);
  }
};

Endings::Endings(Remains remains, EndingKind kind, EndingOptions options)
    : state_(std::make_shared<State>(std::move(remains), kind, std::move(options))) {
  State& state = *state_;
  const std::string why =
      failure_of([&] { state.thread = state.start([shared = state_] { shared->run(); }); });
  if (!why.empty()) state.stop(why);
  if (!state.options.ends_process) return;
  log_failure(failure_of(  // the destructor watches then
      [&] { state.watch = state.start([shared = state_] { shared->end_process_if_stuck(); }); }));
}

bool Endings::is_over() const {
  const std::lock_guard lock(state_->mutex);
  return state_->is_over();
}

void Endings::abort() {
  const std::lock_guard lock(state_->mutex);
  if (std::exchange(state_->aborts, true)) return;
  state_->until = steady_clock::now() + state_->options.deadline;
  state_->changed.notify_all();
}

Endings::~Endings() {
  State& state = *state_;
  const std::string why = state.give_up();
  if (state.watch.joinable()) state.watch.join();
  if (why.empty()) {
    state.thread.join();
    return;
  }
  if (state.thread.joinable()) state.thread.detach();
  left_behind.store(new LeftBehind{why, state_}, std::memory_order_release);
  log(LogLevel::error, why);
}

void require_usable_gpu() {
  const LeftBehind* const left = left_behind.load(std::memory_order_acquire);
  if (left != nullptr) fail(Code::invalid_argument, left->why);
}

}  // namespace hvd::nccl
