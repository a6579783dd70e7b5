// All that one generation of a job owns in this process: the way to the other ranks, the engine and
// its thread. Made by init, dies whole.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/backend/mpi/mpi_carrier.h"
#include "core/base/knobs.h"
#include "core/capi/blocking_group.h"
#include "core/engine/driver.h"
#include "core/group/bootstrap/meeting_place.h"
#include "core/group/bootstrap/variables.h"
#include "core/group/bootstrap/wiring.h"
#include "core/observe/observer.h"
#include "core/observe/timeline_control.h"
#include "horovod/horovod.h"

namespace hvd {

/// What a job is to begin with, besides the environment.
struct StartOptions {
  std::vector<std::vector<int>> process_sets{};  ///< global ranks, ascending
  bool dynamic_process_sets = false;             ///< as if the knob were set
  std::vector<int> members{};    ///< the launcher's ranks that are the job; none: all
  std::optional<Place> place{};  ///< rank and size, where the caller knows them better
  Spread spread{};               ///< how the caller introduces the ranks; none: he cannot
};

/// Any thread may call any function.
class Context {
 public:
  /// Meets the other ranks; blocks until all are there. Throws Error naming what was tried.
  Context(const Environment& environment, uint32_t generation, const StartOptions& options);
  /// Ends the job if nobody has, and waits for it.
  ~Context() = default;

  const hvd_world& world() const { return world_; }
  /// MPI moves the tensors.
  bool uses_mpi() const { return carrier_ != nullptr; }
  /// A key for `purpose`, from the job's key: equal on all ranks, unknown to everybody else.
  JobKey derived_key(std::string_view purpose) const {
    return hvd::derived_key(place_.key, purpose);
  }
  /// False in a forked child, which inherits the memory but neither threads nor connections.
  bool belongs_to_this_process() const { return !is_inherited_; }
  /// Called in a forked child, before anything else there can run.
  void is_now_inherited() { is_inherited_ = true; }
  /// The generation has ended, by whatever cause.
  std::optional<Ending> ending() const { return driver_->ending(); }

  /// Throws Error{invalid_argument} for nonsense, or the Ending. `has_handle`: as of Request.
  std::shared_ptr<Operation> submit(const hvd_request& request, bool has_handle);
  /// The same for several, all or none; each has a handle.
  std::vector<std::shared_ptr<Operation>> submit(std::span<const hvd_request> requests);
  void wait(const Operation& operation) { driver_->wait(operation.handle); }
  void shutdown() {
    driver_->shutdown();
    timeline_.stop();
  }

  const ProcessSets& process_sets() const { return driver_->process_sets(); }
  /// Collective over all ranks of the job; blocks; returns the id. Throws Error{invalid_argument}
  /// for what cannot be added and where sets are fixed, Error{mismatch} when ranks disagree, or the
  /// Ending.
  int32_t add_process_set(std::vector<int> ranks);
  /// The same; for an unknown id and the world.
  void remove_process_set(int32_t id);

  /// Collective over `ranks` (none: all); blocks. The group may outlive the Context. Throws
  /// Error{invalid_argument} for a rank twice or outside the job, or without this one;
  /// Error{timed_out} naming a rank that has not come; the Ending when the job has ended already.
  std::unique_ptr<BlockingGroup> make_group(std::vector<int> ranks);

  /// From now on this rank's trace goes to timeline_path(path, rank). Throws
  /// Error{invalid_argument} when the job was started without a timeline, or when there can be no
  /// such file; then the trace goes where it went.
  void start_timeline(const std::string& path, bool mark_cycles);
  /// The trace is complete when this returns. Does nothing when there is none.
  void stop_timeline() { timeline_.stop(); }

 private:
  void start_timeline_of_knobs();
  void require_dynamic_sets(const std::string& doing) const;
  void meet_for_nothing();
  int32_t change_sets(OperationKind kind, const std::vector<int>& members, GroupNumber target);
  std::shared_ptr<Operation> agree_on_sets(OperationKind kind, std::vector<int> members,
                                           GroupNumber target);
  std::shared_ptr<Operation> start(Request&& request);
  [[noreturn]] void refuse(Pushed why);
  void tell(const Ending& ending, bool interrupts) noexcept;
  void blame(const Ending& ending) noexcept;

  bool is_inherited_ = false;  ///< asking the system for our process costs a call each time
  const Knobs knobs_;
  const SystemClock clock_;
  hvd_world world_{};
  MeetingPlace place_;
  Roster roster_;
  bool spare_cores_ = false;
  Observer observer_;
  TimelineControl timeline_{observer_, clock_};
  std::mutex changing_sets_;  ///< held while a set is added or removed: one at a time

  std::mutex making_groups_;
  std::map<std::vector<int>, int> groups_made_;  ///< by ranks: the order of calls tells them apart
  std::atomic<bool> blamed_{false};

  std::unique_ptr<mpi::MpiCarrier> carrier_;  ///< none: the runtime moves the bytes itself
  std::unique_ptr<Driver> driver_;            ///< goes first: its thread uses what is above
};

}  // namespace hvd
