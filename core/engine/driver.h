// Who calls Engine::turn(), and when nobody does. Whoever holds the token drives: the engine's own
// thread or, while that one rests, a thread that waits for an operation, so that a blocking call
// needs no thread switch. A driver without progress spins for 2 us, yields for 50 us, then sleeps.
//
// The engine thread rests in three ways. While operations come and go it naps: it looks again after
// a fraction of a millisecond, and nobody has to wake it, so that neither submitting nor waiting
// costs a system call (docs/decisions/0012). When nothing has happened for a few naps it sleeps
// until it is rung. While a waiting thread drives it only sees to it that somebody takes over.
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

struct DriverOptions {
  bool spare_cores = false;   ///< every local rank has a core of its own: a short spin costs nobody
  std::optional<int> core{};  ///< to which the engine thread is pinned
};

/// Any thread may call any function; construction and destruction belong to one.
class Driver {
 public:
  Driver(std::unique_ptr<Engine> engine, const DriverOptions& options);
  /// Asks for the end of the job if nobody has, and waits for it.
  ~Driver();

  /// As Engine::submit().
  Pushed submit(Request&& request) { return submit(std::span(&request, 1)); }
  /// The same for several, all or none.
  Pushed submit(std::span<Request> requests);
  std::optional<Ending> ending() const { return engine_->ending(); }
  /// Returns when `handle` is complete, driving the engine meanwhile if nobody else does.
  void wait(const Handle& handle);
  const ProcessSets& process_sets() const { return engine_->process_sets(); }
  /// Agrees with all ranks on the end and waits until it is there.
  void shutdown();

 private:
  enum class Holder : uint8_t { nobody, engine_thread, waiting_thread };
  /// What the engine thread does when it does not drive.
  enum class Rest : uint8_t { none, nap, sleep, watch, stand_by };

  /// How long the engine thread naps: longer when it was woken for nothing, so that a row of
  /// blocking calls, whose waiters drive, is hardly disturbed.
  class Naps {
   public:
    static constexpr std::chrono::microseconds kShortest{200};
    static constexpr std::chrono::microseconds kLongest{1600};
    static constexpr int kForNothing = 6;  ///< so many in a row, then it sleeps

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
  const DriverOptions options_;
  std::optional<Error> error_;  ///< caught in the last turn; with the token
  bool peers_ring_ = false;     ///< they were told so; with the token
  bool moved_ = false;          ///< since the engine thread looked last; with the token

  std::mutex mutex_;
  std::condition_variable changed_;    ///< the token is free, or all is over
  std::condition_variable unwatched_;  ///< for the engine thread: nobody else drives any more
  Holder holder_ = Holder::nobody;     ///< under mutex_
  Rest rest_ = Rest::none;             ///< under mutex_
  uint64_t drives_ = 0;                ///< of waiting threads so far; under mutex_
  bool finished_ = false;              ///< under mutex_
  std::atomic<int> wanted_{0};  ///< threads that want the token; the engine thread yields to them
  /// Whoever submits must ring at `sleep`; at `nap` too, if nobody will wait for the operation.
  std::atomic<Rest> asleep_{Rest::none};
  Naps naps_;                   ///< of the engine thread alone, as the next one
  uint64_t watched_drive_ = 0;  ///< which of `drives_` it has watched ...
  int watched_ = 0;             ///< ... so many times after the first
  std::thread thread_;
};

}  // namespace hvd
