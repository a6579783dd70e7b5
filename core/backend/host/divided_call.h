// An allreduce among ranks that share memory as two exchanges through EagerSlots: all post what
// they have, each adds up its share of the posts, posts that sum, and takes the others'
// (reduce-scatter and allgather; Rabenseifner, "Optimization of Collective Reduction Operations",
// 2004). One exchange more than an EagerCall, and of the additions only a part. Owned by the
// caller, for one call.
#pragma once

#include "core/backend/host/eager_call.h"
#include "core/backend/host/eager_task.h"
#include "core/group/eager_slots.h"

namespace hvd {

/// Driven by one thread; `slots`, of a host whose ranks are those of the group, and the memory of
/// the task outlive it.
class DividedCall {
 public:
  /// An allreduce within EagerCall::limits().
  DividedCall(EagerSlots& slots, const EagerTask& task);

  /// Whether a task is better done so than as an EagerCall, where it is not a ClaimedCall. All of
  /// it is the same on all ranks. `spare_cores`: every local rank has a core of its own.
  static bool suits(const EagerTask& task, int ranks, bool spare_cores);

  /// Never blocks. `done` when the result is here.
  Run::Progress advance();

 private:
  enum class Stage : uint8_t { add, give, take };

  Run::Progress add();
  Run::Progress give();
  Run::Progress take();

  EagerSlots& slots_;
  const EagerTask& task_;
  const Stretch share_;
  EagerCall sum_;  ///< of the share
  Stage stage_ = Stage::add;
  int taken_ = 1;  ///< shares that are here, the own one among them
};

}  // namespace hvd
