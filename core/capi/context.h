// The state of one job generation in this process: the connections to other ranks, the engine and
// its thread. Made by init.
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

#include "core/base/knobs.h"
#include "core/blocking/blocking_group.h"
#include "core/bootstrap/job_store.h"
#include "core/bootstrap/rank_lock.h"
#include "core/bootstrap/variables.h"
#include "core/bootstrap/wiring.h"
#include "core/engine/progress_thread.h"
#include "core/observe/observer.h"
#include "core/observe/timeline_control.h"
#include "horovod/horovod.h"

namespace hvd {

/// The options of init, in addition to the environment.
struct StartOptions {
  std::vector<std::vector<int>> process_sets{};  ///< global ranks, ascending
  bool dynamic_process_sets = false;             ///< same as the knob
  std::vector<int> members{};          ///< the launcher's ranks that form the job; empty: all
  std::optional<RankAndSize> world{};  ///< replaces the launcher's; needs `rendezvous`
  RendezvousFunction rendezvous{};     ///< provided by the caller of init; may be empty
  std::string nccl_of_python{};        ///< see device::NcclPlaces
};

/// Any thread may call any function.
class Context : public std::enable_shared_from_this<Context> {
 public:
  /// Connects to the other ranks; blocks until all are connected. `inits`: see open_job_store().
  /// Throws Error naming the attempted rendezvous.
  Context(const Environment& environment, uint32_t inits, const StartOptions& options);
  /// Ends the job, if it has not ended, and waits for it.
  ~Context() = default;

  const hvd_world& world() const { return world_; }
  /// Whether MPI moves the tensors.
  bool uses_mpi() const { return knobs_.cpu_operations == CpuOperationsChoice::mpi; }
  /// Derives a key for `purpose` from the key of the job; equal on all ranks.
  JobKey derived_key(std::string_view purpose) const {
    return hvd::derived_key(store_.key, purpose);
  }
  /// False in a forked child, which has the memory but neither threads nor connections.
  bool belongs_to_this_process() const { return !is_inherited_; }
  /// Called in a forked child before any other code.
  void is_now_inherited() { is_inherited_ = true; }
  /// In a forked child: throws Error{invalid_argument} while the parent process is the rank.
  void require_no_parent() const { lock_.require_free(); }
  /// Returns nullopt while the generation is running.
  std::optional<Ending> ending() const { return progress_->ending(); }

  /// Submits an operation. Throws Error{invalid_argument} for an invalid request, or the Ending.
  /// `has_handle`: see Request.
  std::shared_ptr<Completion> submit(const hvd_request& request, bool has_handle);
  /// Submits all requests or none. Each has a handle.
  std::vector<std::shared_ptr<Completion>> submit(std::span<const hvd_request> requests);
  void wait(const Completion& operation) { progress_->wait(operation.handle); }
  bool poll(const Completion& operation, std::chrono::microseconds patience) {
    return progress_->poll(operation.handle, patience);
  }
  /// Ends the job and waits for its end. Returns the loss, if the job has ended by one meanwhile.
  std::optional<Error> shutdown();

  const ProcessSets& process_sets() const { return progress_->process_sets(); }
  /// Adds a set and returns its id. Collective over all ranks of the job; blocks. Throws
  /// Error{invalid_argument} if sets are not dynamic or the set is invalid; Error{mismatch} if
  /// ranks request different changes; or the Ending.
  int32_t add_process_set(std::vector<int> ranks);
  /// Removes a set. Collective over all ranks of the job; blocks. Errors as above; also
  /// Error{invalid_argument} for an unknown id and the world.
  void remove_process_set(int32_t id);

  /// Makes a group. Collective over `ranks` (empty: all); blocks. The group may outlive the
  /// Context. Throws Error{invalid_argument} if a rank is duplicate or outside the job, or this
  /// rank is missing; Error{timed_out} naming a rank that has not joined; the Ending if the job has
  /// ended.
  std::unique_ptr<BlockingGroup> make_group(std::vector<int> ranks, const std::string& name);

  GroupCalls& group_calls() { return progress_->group_calls(); }
  /// Counts the calls on groups that wait: `change` more than before.
  void count_waiting_calls(int change) { progress_->count_waiting_calls(change); }
  /// Returns the loss of one of `ranks` (global), if it has ended the job, and reports it to the
  /// launcher: a call on a group fails with it.
  std::optional<Error> loss_of_one_of(std::span<const int> ranks);

  CounterValues counters() const { return progress_->counters().snapshot(); }

  /// Writes the trace of this rank to timeline_path(path, rank) from now on. Throws
  /// Error{invalid_argument} if the job was started without a timeline or the file cannot be
  /// created; the trace then continues in its former file.
  void start_timeline(const std::string& path, bool mark_cycles);
  /// Completes the trace. Does nothing if there is none.
  void stop_timeline() { timeline_.stop(); }

 private:
  Context(const Environment& environment, uint32_t inits, const StartOptions& options,
          Identity identity);
  void start_timeline_of_knobs();
  void require_dynamic_sets(const std::string& doing) const;
  void meet_for_nothing();
  int32_t change_sets(OperationKind kind, const std::vector<int>& members, GroupNumber target);
  std::shared_ptr<Completion> agree_on_sets(OperationKind kind, std::vector<int> members,
                                            GroupNumber target);
  std::shared_ptr<Completion> start(Request&& request);
  [[noreturn]] void refuse(const Refusal& refusal);
  [[noreturn]] void refuse_as_ended(const std::string& what);
  void tell(const Ending& ending, bool interrupts) noexcept;
  void blame(const Ending& ending) noexcept;

  bool is_inherited_ = false;  ///< cheaper than a comparison of getpid()
  RankLock lock_;
  const Knobs knobs_;
  const SystemClock clock_;
  hvd_world world_{};
  JobStore store_;
  Roster roster_;
  bool spare_cores_ = false;
  Observer observer_;
  TimelineControl timeline_{observer_, clock_};
  std::mutex changing_sets_;  ///< held while a set is added or removed

  std::mutex making_groups_;
  /// By ranks and name: how many groups of them were made.
  std::map<std::pair<std::vector<int>, std::string>, int> groups_made_;
  std::atomic<Code> blamed_{Code::ok};  ///< kind of the ending that was reported last
  RankBoard* const board_;              ///< of the process; nullptr: there is none

  std::unique_ptr<ProgressThread> progress_;  ///< destroyed first: its thread uses the above
};

}  // namespace hvd
