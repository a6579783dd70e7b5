// All that one generation of a job owns in this process: the way to the other ranks, the engine and
// its thread. Made by init, dies whole.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/base/knobs.h"
#include "core/capi/blocking_group.h"
#include "core/engine/driver.h"
#include "core/group/bootstrap/wiring.h"
#include "core/observe/observer.h"
#include "core/observe/timeline_control.h"
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
  void shutdown() {
    driver_->shutdown();
    timeline_.stop();
  }

  /// Collective over `ranks` (none: all); blocks. The group may outlive the Context. Throws
  /// Error{invalid_argument} for a rank twice or outside the job, or without this one;
  /// Error{timed_out} naming a rank that has not come.
  std::unique_ptr<BlockingGroup> make_group(std::vector<int> ranks);

  /// From now on this rank's trace goes to timeline_path(path, rank). Throws
  /// Error{invalid_argument} when the job was started without a timeline, or when there can be no
  /// such file; then the trace goes where it went.
  void start_timeline(const std::string& path, bool mark_cycles);
  /// The trace is complete when this returns. Does nothing when there is none.
  void stop_timeline() { timeline_.stop(); }

 private:
  void start_timeline_of_knobs();
  void tell(const Ending& ending) noexcept;
  void blame(const Ending& ending) noexcept;

  const pid_t process_;
  const Knobs knobs_;
  const SystemClock clock_;
  hvd_world world_{};
  JobKey key_;
  Roster roster_;
  bool spare_cores_ = false;
  std::unique_ptr<Store> store_;
  Observer observer_;
  TimelineControl timeline_{observer_, clock_};
  std::unique_ptr<Driver> driver_;

  mutable std::mutex mutex_;
  std::optional<Ending> ending_;
  std::map<std::vector<int>, int> groups_made_;  ///< by ranks: the order of calls tells them apart
  std::atomic<bool> blamed_{false};
};

}  // namespace hvd
