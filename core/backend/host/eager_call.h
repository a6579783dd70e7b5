// One small operation among ranks that share memory, as a single exchange through EagerSlots: all
// post what they have, piece by piece, and each takes from the posts what it needs. No schedule, no
// memory of its own: what such a call costs is the way between two cores. Owned by the caller, for
// one call.
//
// Measured at np 2 beside the executor's way (planning included): 8 bytes 0.19 us instead of 2.5,
// 16 KiB 1.7 instead of 3.6.
#pragma once

#include <array>
#include <cstddef>

#include "core/backend/backend.h"
#include "core/backend/host/eager_task.h"
#include "core/group/eager_slots.h"

namespace hvd {

/// As a part of a message that lies at `room`: `part` of the input, prescaled.
void copy_in(EagerSlots& slots, const EagerTask& task, Stretch part, std::byte* room);

/// Driven by one thread; `slots`, of a host whose ranks are those of the group, and the memory of
/// the task outlive it.
class EagerCall {
 public:
  EagerCall(EagerSlots& slots, const EagerTask& task);
  /// Of a task that reduces: makes only `wanted` of the result.
  EagerCall(EagerSlots& slots, const EagerTask& task, Stretch wanted);

  /// Among the ranks of `slots`.
  static EagerLimits limits(const EagerSlots& slots);

  /// Never blocks; does all pieces that are there, without a word to the caller between two (np 2,
  /// broadcast of 256 KiB: 5.1 us instead of 5.4). `done` when the result is here.
  Run::Progress advance();

 private:
  /// Instead of its own post, which its core would have to fetch back: peers read it, too
  /// (allreduce of 64 KiB at np 2: 2.7 us instead of 5.7).
  bool reads_own_input() const { return task_.prescale == 1.0; }
  bool post_piece();
  void copy_piece_in(Stretch piece);
  bool take_piece();
  bool take(Stretch part, size_t end);

  EagerSlots& slots_;
  const EagerTask& task_;
  const size_t bytes_;
  const size_t piece_bytes_;  ///< what is posted at a time
  const Stretch wanted_;
  std::byte* room_ = nullptr;
  bool posted_all_ = false;
  size_t posted_ = 0;
  size_t taken_ = 0;
  const int sources_;  ///< ranks whose input this one reads
  int seen_ = 0;       ///< of these, whose next piece is there
  /// [rank] where the next piece lies, of those seen; to be reduced.
  std::array<const void*, EagerSlots::kMostRanks> parts_;
};

}  // namespace hvd
