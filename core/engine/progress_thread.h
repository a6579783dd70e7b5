// Decides which thread drives the engine. The holder of the progress token calls Engine::turn(). It
// is the engine thread or a thread that waits for an operation, so a blocking call needs no thread
// switch. When idle, the holder spins for 2 us, yields for up to 50 us, then sleeps.
//
// The engine thread rests in three ways. Between operations it naps: it polls again after a
// fraction of a millisecond without a wakeup, so submitting and waiting need no system call
// (docs/decisions/0012). After some naps without events it sleeps until it is woken. While a
// waiting thread drives, it only checks from time to time whether it must take over.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>

#include "core/engine/engine.h"

namespace hvd {

struct ProgressOptions {
  bool spare_cores = false;   ///< every local rank has its own core, so it may spin
  std::optional<int> core{};  ///< the core to which the engine thread is pinned
};

/// Any thread may call any function. One thread constructs and destroys it.
class ProgressThread {
 public:
  ProgressThread(std::unique_ptr<Engine> engine, const ProgressOptions& options);
  /// Requests the end of the job, if it has not ended, and waits for it.
  ~ProgressThread();

  /// See Engine::submit().
  std::optional<Refusal> submit(Request&& request) { return submit(std::span(&request, 1)); }
  /// Submits all requests or none.
  std::optional<Refusal> submit(std::span<Request> requests);
  /// See Engine::count_waiting_calls().
  void count_waiting_calls(int change) {
    engine_->count_waiting_calls(change);
    engine_->ring();
  }
  GroupCalls& group_calls() { return engine_->group_calls(); }
  std::optional<Ending> ending() const { return engine_->ending(); }
  /// Blocks until `handle` is complete. Drives the engine meanwhile unless another thread does.
  void wait(const Handle& handle);
  /// As wait(), but never sleeps while it drives. Gives up after `patience` without progress, and
  /// others then drive. Returns whether `handle` is complete.
  bool poll(const Handle& handle, std::chrono::microseconds patience);
  const ProcessSets& process_sets() const { return engine_->process_sets(); }
  const Counters& counters() const { return engine_->counters(); }
  const Backends& backends() const { return engine_->backends(); }
  /// Ends the job in agreement with all ranks. Blocks until it has ended.
  void shutdown();

 private:
  enum class Holder : uint8_t { nobody, engine_thread, waiting_thread };
  /// The activity of the engine thread when it does not drive.
  enum class Rest : uint8_t { none, nap, sleep, watch, stand_by };

  /// The length of naps. It grows while the engine thread finds nothing to do, so that it hardly
  /// disturbs consecutive blocking calls, which the waiting threads drive.
  class Naps {
   public:
    static constexpr std::chrono::microseconds kShortest{200};
    static constexpr std::chrono::microseconds kLongest{1600};
    static constexpr int kForNothing = 6;  ///< consecutive idle naps before it sleeps

    void was_needed() { length_ = kShortest, for_nothing_ = 0; }
    void was_not_needed(bool something_happened) {
      length_ = std::min(length_ * 2, kLongest);
      for_nothing_ = something_happened ? 0 : for_nothing_ + 1;
    }
    bool are_over() const { return for_nothing_ >= kForNothing; }
    std::chrono::microseconds length() const { return length_; }

   private:
    std::chrono::microseconds length_ = kShortest;
    int for_nothing_ = 0;
  };

  void main();
  Rest drive_as_engine_thread();
  Rest choose_rest(bool was_needed);
  void rest(Rest how, std::unique_lock<std::mutex>& lock);
  void watch_the_other(std::unique_lock<std::mutex>& lock);
  bool take_token(const Handle& handle);
  void ask_for_token(const Handle& handle, std::unique_lock<std::mutex>& lock);
  void drive_until(const Handle& handle);
  void give_token_back();
  void rouse_engine_thread();
  void see_to_submissions(bool awaited);
  bool turn();
  template <class Body>
  bool guarded(Body body);
  bool fall_asleep(Rest how);
  void wake_up();

  std::unique_ptr<Engine> engine_;
  const ProgressOptions options_;
  std::optional<Error> error_;  ///< caught in the last turn; guarded by the token
  bool peers_ring_ = false;     ///< peers must wake this rank; guarded by the token
  bool moved_ = false;          ///< progress since the engine thread's last check; by the token

  std::mutex mutex_;
  std::condition_variable changed_;    ///< the token is free, or the engine is finished
  std::condition_variable unwatched_;  ///< wakes the engine thread when no other thread drives
  Holder holder_ = Holder::nobody;     ///< under mutex_
  Rest rest_ = Rest::none;             ///< under mutex_
  uint64_t drives_ = 0;                ///< times that a waiting thread drove; under mutex_
  bool finished_ = false;              ///< under mutex_
  std::atomic<int> wanted_{0};  ///< threads that want the token; the engine thread yields to them
  /// A submitting thread must wake the engine at `sleep`, and at `nap` if no thread will wait for
  /// the operation.
  std::atomic<Rest> asleep_{Rest::none};
  // Only for the engine thread:
  Naps naps_;
  uint64_t watched_drive_ = 0;  ///< value of drives_ at the last check
  int watched_ = 0;             ///< checks that found the same value
  std::thread thread_;
};

}  // namespace hvd
