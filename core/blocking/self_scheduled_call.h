// Self-scheduled allreduce for oversubscribed hosts, as one exchange through EagerBuffers (Tang and
// Yew, "Processor Self-Scheduling for Multiple-Nested Parallel Loops", 1986). All ranks post their
// inputs. Ranks that are running after the last post claim shares, reduce them, and store the
// result in place of the first rank's post. All ranks read the result there. Unlike in a
// OneShotCall, each element is reduced only once. Unlike in a ReduceScatterAllgatherCall, no rank
// has to be scheduled a second time before the others can continue. The caller owns it, for one
// call.
#pragma once

#include <array>
#include <cstdint>

#include "core/backend/backend.h"
#include "core/blocking/tensor_task.h"
#include "core/group/eager_buffers.h"

namespace hvd {

/// Driven by one thread. `slots` and the memory of the task must outlive it. The ranks of `slots`
/// are the ranks of the group.
class SelfScheduledCall {
 public:
  /// `task`: an allreduce within OneShotCall::limits().
  SelfScheduledCall(EagerBuffers& slots, const TensorTask& task);

  /// Returns whether this is faster than a OneShotCall and a ReduceScatterAllgatherCall. Arguments
  /// and result are equal on all ranks. `spare_cores`: every local rank has its own core.
  static bool suits(const TensorTask& task, int ranks, bool spare_cores);

  /// Reduces at most one share. Spins for a few microseconds at most if data is missing. Returns
  /// `done` when the result is complete.
  Progress advance();

 private:
  enum class Stage : uint8_t { post, see, add, take };

  Progress post();
  Progress see();
  Progress add();
  Progress take();
  bool see_posts();
  Progress go_on(Stage stage);

  EagerBuffers& slots_;
  const TensorTask& task_;
  const int shares_;
  Stage stage_ = Stage::post;
  bool has_waited_ = false;
  int seen_ = 0;
  std::array<const std::byte*, EagerBuffers::kMostRanks> posts_;  ///< [rank], the first seen_
};

}  // namespace hvd
