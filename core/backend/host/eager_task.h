// An operation on one plain tensor: what every rank has, what each wants of it, and what the result
// is made of. How the bytes get there is left to EagerCall, for small ones within a host, to
// EagerLinkCall and PhasedLinkCall, over links, and to DirectCall, where ranks use each other's
// memory. Pure.
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

/// Up to which size an operation is made an EagerTask, or goes a way: bytes of the input, 0 for
/// none. The same on all ranks of a group.
struct EagerLimits {
  size_t reduced = 0;   ///< allreduce
  size_t gathered = 0;  ///< allgather
  size_t broadcast = 0;
  size_t dealt = 0;        ///< alltoall, reducescatter: each rank gets a part of its own
  bool prescales = false;  ///< a reduction may have a prescale other than 1

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
/// Of how many ranks the input is wanted.
int sources_of(const EagerTask& task, int ranks);
/// The rank that `rank` of `ranks` takes as number `index` of them: first itself, whose input is
/// here while others are awaited.
int source_of(const EagerTask& task, int index, int rank, int ranks);
/// What `rank` of `ranks` wants of each source.
Stretch wanted_of(const EagerTask& task, int rank, int ranks);

/// Of the output of `rank` of `ranks`.
size_t output_bytes(const EagerTask& task, int rank, int ranks);

/// Share `index` of `shares` of the work on the whole input: whole cache lines, so that of an
/// aligned tensor no two ranks write into the same one.
Stretch share_of(const EagerTask& task, int index, int shares);

/// Of a task that moves: where in the output belongs what this rank has `wanted` of `source`.
std::byte* place_of(const EagerTask& task, Stretch wanted, int source);
/// The same task: puts there `part`, a stretch of it, which lies at `input`; it may lie there
/// already. `copy`: kernel::copy or one that does the same.
using CopyFunction = void (*)(void* destination, const void* source, size_t bytes);
void put(const EagerTask& task, Stretch wanted, Stretch part, int source, const void* input,
         CopyFunction copy);
/// Of a task that reduces: makes its part of the output, at its place there. `inputs[r]` is where
/// that part of rank r lies, prescaled. In ascending order of rank, as the executor does: the same
/// bits.
void reduce(const EagerTask& task, Stretch wanted, Stretch part,
            std::span<const void* const> inputs);

}  // namespace hvd
