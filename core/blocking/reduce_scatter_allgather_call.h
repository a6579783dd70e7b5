// Reduce-scatter + allgather: an allreduce in shared memory as two exchanges through EagerBuffers
// (Rabenseifner, "Optimization of Collective Reduction Operations", 2004). Each rank posts its
// input, reduces its share of all posts, posts the result, and reads the shares of the others.
// Compared to a OneShotCall it takes one more exchange, but each rank reduces only its share. The
// caller owns it, for one call.
#pragma once

#include "core/blocking/one_shot_call.h"
#include "core/blocking/tensor_task.h"
#include "core/group/eager_buffers.h"

namespace hvd {

/// Driven by one thread. `slots` and the memory of the task must outlive it. The ranks of `slots`
/// are the ranks of the group.
class ReduceScatterAllgatherCall {
 public:
  /// `task`: an allreduce within OneShotCall::limits().
  ReduceScatterAllgatherCall(EagerBuffers& slots, const TensorTask& task);

  /// Returns whether this is faster than a OneShotCall for a task that SelfScheduledCall does not
  /// suit. Arguments and result are equal on all ranks. `spare_cores`: every local rank has its own
  /// core.
  static bool suits(const TensorTask& task, int ranks, bool spare_cores);

  /// Never blocks. Returns `done` when the result is complete.
  Progress advance();

 private:
  enum class Stage : uint8_t { add, give, take };

  Progress add();
  Progress give();
  Progress take();

  EagerBuffers& slots_;
  const TensorTask& task_;
  const Stretch share_;
  OneShotCall sum_;  ///< reduces the share
  Stage stage_ = Stage::add;
  int taken_ = 1;  ///< shares that are complete, including its own
};

}  // namespace hvd
