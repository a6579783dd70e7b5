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
#include "core/base/dtype.h"
#include "core/group/eager_slots.h"

namespace hvd {

/// One contiguous tensor, with memory on every rank. All facts but the addresses are equal on all
/// ranks, and as a Batch has them.
struct EagerTask {
  Transfer transfer = Transfer::allreduce;
  DType dtype = DType::uint8;
  ReduceOp op = ReduceOp::sum;
  double prescale = 1.0;
  double postscale = 1.0;
  int root = 0;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;  ///< as BatchTensor::output; allgather, alltoall: always there
  size_t rows = 0;              ///< of dim 0 of the input; alltoall: a multiple of the ranks
  size_t row_bytes = 0;

  size_t bytes() const { return rows * row_bytes; }
};

/// Driven by one thread; `slots`, of a host whose ranks are those of the group, and the memory of
/// the task outlive it.
class EagerCall {
 public:
  EagerCall(EagerSlots& slots, const EagerTask& task);

  /// Never blocks; does one piece and returns. `done` when the result is here.
  Run::Progress advance();

 private:
  /// A stretch of the input.
  struct Stretch {
    size_t begin = 0;
    size_t end = 0;
    bool empty() const { return begin >= end; }
  };

  /// Instead of its own post, which its core would have to fetch back: peers read it, too
  /// (allreduce of 64 KiB at np 2: 2.7 us instead of 5.7).
  bool reads_own_input() const { return task_.prescale == 1.0; }
  bool is_root() const { return task_.root == slots_.local_rank(); }
  Stretch wanted_here() const;
  bool post_piece();
  void copy_in(Stretch piece);
  bool take_piece();
  bool see_piece(size_t end);
  void take(Stretch piece);
  void reduce(Stretch part);
  void copy(Stretch part, int from);

  EagerSlots& slots_;
  const EagerTask& task_;
  const size_t bytes_;
  const size_t piece_bytes_;  ///< what is posted at a time
  const Stretch wanted_;      ///< of every rank's input
  std::byte* room_ = nullptr;
  bool posted_all_ = false;
  size_t posted_ = 0;
  size_t taken_ = 0;
  int seen_ = 0;  ///< ranks whose next piece is there
  std::array<const void*, EagerSlots::kMostRanks>
      posts_;  ///< [rank] below seen_: the beginning of its message
};

}  // namespace hvd
