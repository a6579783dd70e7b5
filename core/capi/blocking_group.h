// A group for calls that need no agreement, because all its ranks make the same ones in the same
// order. It has staging and connections of its own, so that it never meets the engine, and whoever
// calls drives it: no thread belongs to it. The caller of hvd_group_create owns it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "core/backend/host/direct_call.h"
#include "core/backend/host/eager_task.h"
#include "core/backend/host/faster_way.h"
#include "core/backend/host/host_backend.h"
#include "core/base/aligned_buffer.h"
#include "core/base/knobs.h"
#include "core/engine/process_sets.h"
#include "core/group/bootstrap/wiring.h"
#include "core/group/peer_memory.h"

namespace hvd {

/// Driven by one thread at a time.
class BlockingGroup {
 public:
  /// `wiring` comes from connect_group() for `ranks` (global, ascending). `spare_cores`: every
  /// local rank has a core of its own; the same on all ranks of a host.
  BlockingGroup(Wiring wiring, const std::vector<int>& ranks, const Knobs& knobs, bool spare_cores);
  BlockingGroup(const BlockingGroup&) = delete;
  BlockingGroup& operator=(const BlockingGroup&) = delete;

  /// Within the group.
  int rank() const { return levels_.all->rank(); }
  int size() const { return members_.size(); }
  /// As a set of its own: ranks are those within the group.
  const ProcessSet& members() const { return members_; }

  /// Returns when the result is here and the others have what they need of this rank. Of the batch,
  /// `sequence` is not used. Memory of its tensors may overlap, see HostBackend. Throws
  /// Error{peer_lost} naming the global rank, or Error{internal}, where there is no memory or
  /// tensors cannot be copied. Afterwards every call throws, and a rank that waits for this one is
  /// told so.
  void run(Batch batch);
  /// The same for one plain tensor, within task_limits(), by the fastest of its ways: one exchange
  /// or the phases of a plan where it is small, straight from tensor to tensor where the ranks
  /// allow it, or as a batch, which `as_batch` makes.
  void run(const EagerTask& task, const std::function<Batch()>& as_batch);
  const EagerLimits& task_limits() const { return task_limits_; }
  /// Returns when all ranks have called it.
  void barrier();
  /// The last call, collective like all: nobody takes the end of this process for a loss any more.
  /// Who is lost meanwhile is not waited for. After an error of a call it takes at most a second.
  void leave();

 private:
  /// What it takes to read and write the others' tensors.
  struct Direct {
    Direct(int ranks, DirectCall::HasEnded has_ended);
    PeerMemory memory;
    DirectCall::HasEnded has_ended;
    AlignedBuffer scratch;
    std::map<std::tuple<Transfer, DType, int>, FasterWay> ways{};  ///< by bit_width of the bytes
  };

  template <class Call>
  void or_give_up(Call call);
  void run_with_private_output(const EagerTask& task, const std::function<Batch()>& as_batch);
  void run_the_fastest_way(const EagerTask& task, const std::function<Batch()>& as_batch);
  void run_batch(Batch batch);
  void begin_call();
  void end_call(bool waited);
  void exchange(const EagerTask& task);
  std::shared_ptr<const Plan> plan_in_phases(const EagerTask& task);
  void go_in_phases(const EagerTask& task, std::shared_ptr<const Plan> plan);
  bool may_go_directly(const EagerTask& task) const;
  Direct* direct();
  void go_directly(const EagerTask& task);
  [[noreturn]] void fail_by(const DirectCall::Trouble& trouble);
  bool has_ended(int peer) const;
  void heed_who_gave_up();
  void settle(FasterWay& way, Duration took, size_t bytes);
  template <class T>
  std::vector<T> tell(const T& mine);
  template <class Step>
  bool drive(Step step);
  bool on_one_host() const;
  void give_up(int lost);
  void forget(int rank);
  void part_a_little(TimePoint until);
  void set_asleep(bool asleep);
  void watch_sockets();
  void forget_sockets();
  void wait_for_news(std::optional<TimePoint> until);
  void check_processes();

  Wiring wiring_;
  HostBackend backend_;
  GroupLevels levels_;
  const ProcessSet members_;
  EagerSlots* const eager_slots_;  ///< of the segment; nullptr where there are none
  const EagerLimits eager_limits_;
  const EagerLimits task_limits_;
  const std::vector<int> ranks_;  ///< global
  bool knows_direct_ = false;
  std::unique_ptr<Direct> direct_{};  ///< nullptr: not allowed, or not known yet
  const Duration peer_timeout_;
  const bool spare_cores_;
  uint64_t next_sequence_ = 1;
  bool interrupted_ = false;   ///< a call is under way, or has ended by an Error
  bool said_goodbye_ = false;  ///< over the links
  bool watches_sockets_ = false;
  int calls_awake_ = 0;  ///< in a row, while it watches them
  std::vector<uint64_t> ready_;
};

}  // namespace hvd
