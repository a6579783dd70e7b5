// One-shot: a latency-bound operation in shared memory as a single exchange through EagerBuffers.
// All ranks post their inputs, and each rank reads what it needs from the posts. It needs no
// schedule and allocates nothing. The caller owns it, for one call. Measurements:
// docs/decisions/0014.
#pragma once

#include <array>
#include <cstddef>

#include "core/backend/backend.h"
#include "core/blocking/tensor_task.h"
#include "core/group/eager_buffers.h"

namespace hvd {

/// Copies `part` of the input, prescaled, into the message at `room`.
void copy_in(EagerBuffers& slots, const TensorTask& task, Stretch part, std::byte* room);

/// Driven by one thread. `slots` and the memory of the task must outlive it. The ranks of `slots`
/// are the ranks of the group.
class OneShotCall {
 public:
  OneShotCall(EagerBuffers& slots, const TensorTask& task);
  /// For a reduction: computes only the range `wanted` of the result.
  OneShotCall(EagerBuffers& slots, const TensorTask& task, Stretch wanted);

  /// The limits for the ranks of `slots`.
  static SizeLimits limits(const EagerBuffers& slots);

  /// Processes all available pieces. Never blocks. Returns `done` when the result is complete.
  Progress advance();

 private:
  /// Whether this rank reads its input instead of its post. Peers read the post, so its cache lines
  /// would have to be fetched back.
  bool reads_own_input() const { return task_.operation.prescale == 1.0; }
  bool post_piece();
  void copy_piece_in(Stretch piece);
  bool take_piece();
  bool take(Stretch part, size_t end);

  EagerBuffers& slots_;
  const TensorTask& task_;
  const size_t bytes_;
  const size_t piece_bytes_;  ///< bytes per post
  const Stretch wanted_;
  std::byte* room_ = nullptr;
  bool posted_all_ = false;
  size_t posted_ = 0;
  size_t taken_ = 0;
  const int sources_;  ///< ranks whose input this one reads
  int seen_ = 0;       ///< sources whose next piece is available
  /// [rank] the next piece of the sources seen, for a reduction.
  std::array<const void*, EagerBuffers::kMostRanks> parts_;
};

}  // namespace hvd
