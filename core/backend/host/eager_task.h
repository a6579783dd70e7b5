// A small operation that is one exchange: what every rank has, what each wants of it, and what the
// result is made of. How the bytes get there is left to EagerCall, within a host, and to
// EagerLinkCall, over links. Pure.
#pragma once

#include <cstddef>
#include <span>

#include "core/backend/backend.h"
#include "core/base/dtype.h"

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
  bool reduces() const {
    return transfer == Transfer::allreduce || transfer == Transfer::reducescatter;
  }
};

/// Which operations are eager: bytes of the input, 0 for none. The same on all ranks of a group.
struct EagerLimits {
  size_t reduced = 0;   ///< allreduce
  size_t gathered = 0;  ///< allgather
  size_t broadcast = 0;
  size_t dealt = 0;  ///< alltoall, reducescatter: each rank gets a part of its own
  bool prescales = false;

  size_t of(Transfer transfer) const;
};

/// A stretch of the input.
struct Stretch {
  size_t begin = 0;
  size_t end = 0;
  bool empty() const { return begin >= end; }
  size_t bytes() const { return end - begin; }
};

/// Whether others want anything of what `rank` has.
bool gives(const EagerTask& task, int rank);
/// Of how many ranks the input is wanted, and which rank the one is that counts `index`.
int sources_of(const EagerTask& task, int ranks);
int source_of(const EagerTask& task, int index);
/// What `rank` of `ranks` wants of each of them.
Stretch wanted_of(const EagerTask& task, int rank, int ranks);

/// Makes of `part`, a stretch of what this rank has `wanted`, its part of the output. `inputs` are
/// where that part of each source lies, prescaled. Reduces in ascending order of rank, as the
/// executor does: the same bits.
void take(const EagerTask& task, Stretch wanted, Stretch part, std::span<const void* const> inputs);

}  // namespace hvd
