// All that one generation of a job owns in this process: the way to the other ranks, the engine and
// its thread. Made by init, dies whole.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "core/base/knobs.h"
#include "core/engine/driver.h"
#include "core/group/bootstrap/identity.h"
#include "core/transport/store.h"
#include "horovod/horovod.h"

namespace hvd {

/// Any thread may call any function.
class Context {
 public:
  /// Meets the other ranks; blocks until all are there. Throws Error naming what was tried.
  Context(const Environment& environment, uint32_t generation);
  /// Ends the job if nobody has, and waits for it.
  ~Context();

  const hvd_world& world() const { return world_; }
  /// False in a forked child, which inherits the memory but neither threads nor connections.
  bool belongs_to_this_process() const;
  /// The generation has ended, by whatever cause.
  std::optional<Ending> ending() const;

  /// Throws Error{invalid_argument} for nonsense, or the Ending.
  std::shared_ptr<Operation> submit(const hvd_request& request);
  void wait(const Operation& operation) { driver_->wait(operation.handle); }
  void shutdown() { driver_->shutdown(); }

 private:
  void tell(const Ending& ending) noexcept;
  void blame(const Ending& ending) noexcept;

  const pid_t process_;
  const Knobs knobs_;
  const SystemClock clock_;
  hvd_world world_{};
  std::unique_ptr<Store> store_;
  std::unique_ptr<Driver> driver_;

  mutable std::mutex mutex_;
  std::optional<Ending> ending_;
  std::atomic<bool> blamed_{false};
};

}  // namespace hvd
