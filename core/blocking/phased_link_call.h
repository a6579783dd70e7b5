// A latency-bound operation over links with forwarding: runs the phases of a plan that moves the
// tensor in one piece. It gives the same result as the executor without the overhead of a batch, a
// run and lists of memory. The caller owns it, for one call. Measurements: docs/decisions/0014.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/backend/backend.h"
#include "core/base/bytes.h"
#include "core/base/small_vector.h"
#include "core/blocking/tensor_task.h"
#include "core/collective/plan.h"
#include "core/group/group.h"

namespace hvd {

/// An allreduce or broadcast among at least two ranks. Driven by one thread. The group and the
/// memory of the task must outlive it. The group must support zero-copy sends (Group::in_place).
/// The task has no prescale.
class PhasedLinkCall {
 public:
  /// The savings are negligible for larger tensors.
  static constexpr size_t kMostBytes = 256 * KiB;

  /// `sequence`: see Batch. `plan`: for the task and the group; must suit, see suits().
  PhasedLinkCall(Group& group, uint64_t sequence, std::shared_ptr<const Plan> plan,
                 const TensorTask& task);
  ~PhasedLinkCall();
  PhasedLinkCall(const PhasedLinkCall&) = delete;
  PhasedLinkCall& operator=(const PhasedLinkCall&) = delete;

  /// Returns whether `plan` moves data, all of it in one piece, among a supported number of ranks.
  /// Equal on all ranks whose plans use the same algorithm.
  static bool suits(const Plan& plan, int ranks);

  /// Never blocks. Returns `done` when the result is complete and no zero-copy send is pending.
  /// Throws the errors of the group: Error{peer_lost}, and Error{internal} for a malformed frame.
  Progress advance();
  Algorithm algorithm() const { return plan_->schedule.algorithm; }

 private:
  const Phase& phase() const { return plan_->schedule.phases[ticket_.unit]; }
  Ticket last_ticket() const { return {ticket_.batch, ticket_.unit - 1}; }
  bool all_passed() const { return ticket_.unit == plan_->schedule.phases.size(); }
  ConstBytes content() const;
  bool publish();
  void await_landings();
  bool see();
  void merge();
  void reduce();
  void pass();
  Progress pump();

  Group& group_;
  const std::shared_ptr<const Plan> plan_;
  const TensorTask& task_;
  Ticket ticket_;           ///< its unit is the phase
  bool published_ = false;  ///< the sends of this phase are queued
  bool done_ = false;
  SmallVector<const void*, 4> seen_;  ///< data of the peers in this phase, in order of rank
  std::vector<int> counts_;           ///< for an average: number of contributions in each of them
};

}  // namespace hvd
