// An operation on one contiguous tensor: the input of each rank, the part that each rank needs, and
// the result. The classes *Call of this folder move the bytes, see ways.h. Pure.
#pragma once

#include <cstddef>
#include <span>

#include "core/backend/backend.h"
#include "core/base/operation.h"

namespace hvd {

/// One operation on one contiguous tensor, with memory on every rank. All fields except the
/// addresses are equal on all ranks.
struct TensorTask {
  Operation operation{};  ///< one that moves tensors; the root is a rank within the group
  const std::byte* input = nullptr;
  std::byte* output = nullptr;  ///< see BatchTensor::output; allgather, alltoall: never nullptr
  size_t rows = 0;              ///< dim 0 of the input; alltoall: a multiple of the group size
  size_t row_bytes = 0;

  size_t bytes() const { return rows * row_bytes; }
  bool reduces() const { return hvd::reduces(operation.kind); }
};

/// The largest inputs, in bytes per kind of operation, that an algorithm supports; 0: none. Equal
/// on all ranks of a group.
struct SizeLimits {
  size_t reduced = 0;   ///< allreduce
  size_t gathered = 0;  ///< allgather
  size_t broadcast = 0;
  size_t dealt = 0;        ///< alltoall, reducescatter: each rank gets its own part
  bool prescales = false;  ///< a reduction may have a prescale other than 1

  size_t of(OperationKind kind) const;
};

/// A range of bytes of the input.
struct Stretch {
  size_t begin = 0;
  size_t end = 0;
  bool empty() const { return begin >= end; }
  size_t bytes() const { return end - begin; }
};

/// Returns whether other ranks need the input of `rank`.
bool gives(const TensorTask& task, int rank);
/// Returns the number of ranks whose input is needed.
int sources_of(const TensorTask& task, int ranks);
/// Returns source number `index` of `rank` of `ranks`. The first source is the rank itself, whose
/// input is available at once; for a broadcast the only source is the root.
int source_of(const TensorTask& task, int index, int rank, int ranks);
/// Returns the range that `rank` of `ranks` needs from each source.
Stretch wanted_of(const TensorTask& task, int rank, int ranks);

/// Returns the size of the output of `rank` of `ranks`, in bytes.
size_t output_bytes(const TensorTask& task, int rank, int ranks);
/// Returns whether the output shares memory with the input that `rank` of `ranks` reads. Returns
/// false for an allreduce or broadcast in place (output equals input).
bool overlaps_own_input(const TensorTask& task, int rank, int ranks);

/// Returns share `index` of `shares` of the whole input. Shares are whole cache lines, so two ranks
/// never write to the same line of an aligned tensor.
Stretch share_of(const TensorTask& task, int index, int shares);

/// For a task without reduction: returns the place in the output for the range `wanted` of
/// `source`.
std::byte* place_of(const TensorTask& task, Stretch wanted, int source);
/// For a task without reduction: copies `part` of the range `wanted` of `source` from `input` to
/// its place in the output. Does nothing if it is there already. `copy`: kernel::copy or an
/// equivalent.
using CopyFunction = void (*)(void* destination, const void* source, size_t bytes);
void put(const TensorTask& task, Stretch wanted, Stretch part, int source, const void* input,
         CopyFunction copy);
/// For a reduction: computes `part` of the output and stores it at its place. `inputs[r]`: the
/// address of that part of rank r, prescaled. Reduces in ascending order of rank like the executor,
/// so the results are bit-identical.
void reduce(const TensorTask& task, Stretch wanted, Stretch part,
            std::span<const void* const> inputs);

}  // namespace hvd
