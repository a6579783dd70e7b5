// The tensors of a batch as memory: what a reduction reads and writes, also on a rank that has
// joined. Owned by a Run.
#pragma once

#include <cstddef>
#include <vector>

#include "core/backend/backend.h"
#include "core/base/aligned_buffer.h"
#include "core/collective/gather_list.h"

namespace hvd {

size_t tensor_bytes(const BatchTensor& tensor, DType dtype);
/// Of one row of dim 0.
size_t row_bytes(const BatchTensor& tensor, DType dtype);

/// The rows of dim 0 that `rank` of `size` gets of `rows`: the first rows % size ranks get one
/// more.
struct Rows {
  size_t first = 0;
  size_t count = 0;
};
Rows rows_of(size_t rows, int rank, int size);

/// Of the output that the caller gives, on `rank` of `size`.
size_t output_bytes(const Batch& batch, const BatchTensor& tensor, int rank, int size);

/// Appends `bytes` at `data` to what is only read.
void add_input(GatherList& list, const std::byte* data, size_t bytes);

/// Allgather, alltoall: whether the size of the output must be asked for. Agreed, like all facts of
/// a batch.
bool needs_output(const BatchTensor& tensor);
/// Allocates the output, of `rows` rows. Throws std::bad_alloc.
void allocate_output(BatchTensor& tensor, int64_t rows, DType dtype);

/// What a reduction reads and writes, also on a rank that has joined: that one reads the neutral
/// element, and nobody looks at its result.
struct ReducedTensors {
  struct Tensor {
    const std::byte* input = nullptr;
    std::byte* output = nullptr;
    size_t bytes = 0;
  };

  /// Throws std::bad_alloc.
  explicit ReducedTensors(const Batch& batch);

  std::vector<Tensor> tensors;
  GatherList inputs, outputs;            ///< the tensors end to end
  std::vector<AlignedBuffer> stand_ins;  ///< what they point to on a rank that has joined
};

}  // namespace hvd
