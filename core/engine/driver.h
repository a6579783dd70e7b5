// Who calls Engine::turn(), and when nobody does. Whoever holds the token drives: the engine's own
// thread or, while that one is parked, a thread that waits for an operation, so that a blocking
// call needs no thread switch. Nothing polls: a driver without progress spins for 2 us, yields for
// 50 us, then sleeps.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
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

  /// False when the generation has ended; the request is untouched.
  bool submit(Request&& request);
  /// Returns when `handle` is complete, driving the engine meanwhile if nobody else does.
  void wait(const Handle& handle);
  const ProcessSets& process_sets() const { return engine_->process_sets(); }
  /// Agrees with all ranks on the end and waits until it is there.
  void shutdown();

 private:
  enum class Holder : uint8_t { nobody, engine_thread, waiting_thread };

  void main();
  bool drive_as_engine_thread();
  bool take_token(const Handle& handle);
  void drive_until(const Handle& handle);
  void give_token_back();
  bool turn();
  template <class Body>
  bool guarded(Body body);
  bool fall_asleep();
  void wake_up();

  std::unique_ptr<Engine> engine_;
  const DriverOptions options_;
  std::optional<Error> error_;  ///< caught in the last turn; with the token

  std::mutex mutex_;
  std::condition_variable changed_;
  Holder holder_ = Holder::nobody;  ///< under mutex_
  bool finished_ = false;           ///< under mutex_
  std::atomic<int> wanted_{0};  ///< threads that want the token; the engine thread yields to them
  std::atomic<bool> asleep_{false};
  std::thread thread_;
};

}  // namespace hvd
