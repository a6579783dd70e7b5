// A group for blocking calls without negotiation: all its ranks make the same calls in the same
// order. It has its own staging memory and connections, so it does not interfere with the engine.
// The calling thread drives it; it has no thread. The caller of hvd_group_create owns it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "core/backend/host/host_backend.h"
#include "core/base/aligned_buffer.h"
#include "core/base/knobs.h"
#include "core/blocking/cross_memory_call.h"
#include "core/blocking/lookout.h"
#include "core/blocking/tensor_task.h"
#include "core/blocking/timed_choice.h"
#include "core/blocking/ways.h"
#include "core/bootstrap/connections.h"
#include "core/bootstrap/wiring.h"
#include "core/group/peer_memory.h"

namespace hvd {

/// Driven by one thread at a time.
class BlockingGroup {
 public:
  /// `wiring`: made by connect_group() for `ranks` (global, ascending). `spare_cores`: every local
  /// rank has its own core (not oversubscribed); equal on all ranks of a host.
  BlockingGroup(Wiring wiring, const std::vector<int>& ranks, const Knobs& knobs, bool spare_cores);
  BlockingGroup(const BlockingGroup&) = delete;
  BlockingGroup& operator=(const BlockingGroup&) = delete;

  /// From now on, calls that wait find silent ranks. Without it they find only ranks that have
  /// ended.
  void look_out_by(std::unique_ptr<Lookout> lookout) { lookout_ = std::move(lookout); }

  /// The rank within the group.
  int rank() const { return levels_.all->rank(); }
  int size() const { return levels_.all->size(); }

  /// Runs a batch. Blocks until the result is available and the peers have received all data of
  /// this rank. Ignores `batch.sequence`. Memory of the tensors may overlap, see HostBackend.
  /// Throws Error{peer_lost} naming the global rank; Error{internal} if memory is exhausted or
  /// tensors cannot be copied. After an error every call throws, and peers that wait for this rank
  /// fail.
  void run(Batch batch);
  /// Like run(Batch), for one contiguous tensor within task_limits(). Ways chooses the algorithm.
  /// `as_batch` makes the batch for Way::executor.
  void run(const TensorTask& task, const std::function<Batch()>& as_batch);
  const SizeLimits& task_limits() const { return task_limits_; }
  /// Blocks until all ranks have called it.
  void barrier();
  /// The last call; collective. Afterwards peers do not report the exit of this process as a loss.
  /// Does not wait for lost ranks. Takes at most one second if a call has failed.
  void leave();

 private:
  /// State for reading and writing the tensors of peers by cross-memory attach (CMA).
  struct Attached {
    Attached(int ranks, CrossMemoryCall::HasEnded has_ended);
    PeerMemory memory;
    CrossMemoryCall::HasEnded has_ended;
    AlignedBuffer scratch;
    CrossMemory cross;  ///< refers to the members above
    /// CMA or the alternative, by kind, dtype and bit_width of the bytes.
    std::map<std::tuple<OperationKind, DType, int>, TimedChoice> choices{};
  };

  template <class Call>
  void or_give_up(OperationKind kind, Call call);
  void run_with_private_output(const TensorTask& task, const std::function<Batch()>& as_batch);
  void run_task(const TensorTask& task, const std::function<Batch()>& as_batch);
  void run_by(Way way, const Ways::Choice& choice, const TensorTask& task,
              const std::function<Batch()>& as_batch);
  void run_batch(Batch batch);
  void begin_call();
  void end_call(bool waited);
  Attached* attached();
  Progress advance(WayCall& call);
  [[noreturn]] void fail_by(const CrossMemoryCall::Trouble& trouble);
  void fail_if_a_peer_gave_up();
  void settle(TimedChoice& choice, Duration took, size_t bytes);
  template <class T>
  std::vector<T> tell(const T& mine);
  template <class Step>
  bool drive(Step step);
  bool on_one_host() const;
  void give_up(int lost);
  void part_a_little(TimePoint until);
  void set_asleep(bool asleep);
  void wait_for_news(std::optional<TimePoint> until);
  class LookingOut;
  void wait_and_look(std::optional<LookingOut>& looking_out);

  Wiring wiring_;
  HostBackend backend_;
  GroupLevels levels_;
  Connections connections_;
  const Ways ways_;
  const SizeLimits task_limits_;  ///< of ways_
  const std::vector<int> ranks_;  ///< global
  bool knows_attached_ = false;
  std::unique_ptr<Attached> attached_{};  ///< nullptr: CMA is not permitted, or not known yet
  std::unique_ptr<Lookout> lookout_{};
  const Duration peer_timeout_;
  const bool spare_cores_;
  uint64_t next_sequence_ = 1;
  uint64_t calls_ = 0;         ///< so far, with the one in progress
  OperationKind kind_{};       ///< of the last one
  bool interrupted_ = false;   ///< a call is in progress or has failed
  bool said_goodbye_ = false;  ///< over the links
  int calls_awake_ = 0;        ///< consecutive calls that did not sleep, while sockets are watched
};

}  // namespace hvd
