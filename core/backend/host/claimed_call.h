// An allreduce among ranks that share memory and cores, as one exchange through EagerSlots: all
// post what they have, whoever has a core when the last post is there adds up what nobody else has
// claimed, and all take the sum from where the first rank's post was (self-scheduling; Tang and
// Yew, "Processor Self-Scheduling for Multiple-Nested Parallel Loops", 1986). Unlike in an
// EagerCall nothing is added up twice, and unlike in a DividedCall no rank must be given a core a
// second time before the others can go on. Owned by the caller, for one call.
#pragma once

#include <array>
#include <cstdint>

#include "core/backend/backend.h"
#include "core/backend/host/eager_task.h"
#include "core/group/eager_slots.h"

namespace hvd {

/// Driven by one thread; `slots`, of a host whose ranks are those of the group, and the memory of
/// the task outlive it.
class ClaimedCall {
 public:
  /// An allreduce within EagerCall::limits().
  ClaimedCall(EagerSlots& slots, const EagerTask& task);

  /// Whether a task is better done so than as an EagerCall or a DividedCall. All of it is the same
  /// on all ranks. `spare_cores`: every local rank has a core of its own.
  static bool suits(const EagerTask& task, int ranks, bool spare_cores);

  /// Does one share and returns; looks for what is missing for some 2 us at most. `done` when the
  /// result is here.
  Run::Progress advance();

 private:
  enum class Stage : uint8_t { post, see, add, take };

  Run::Progress post();
  Run::Progress see();
  Run::Progress add();
  Run::Progress take();
  bool see_posts();
  Run::Progress go_on(Stage stage);

  EagerSlots& slots_;
  const EagerTask& task_;
  const int shares_;
  Stage stage_ = Stage::post;
  bool has_waited_ = false;
  int seen_ = 0;
  std::array<const std::byte*, EagerSlots::kMostRanks> posts_;  ///< [rank], of those seen
};

}  // namespace hvd
