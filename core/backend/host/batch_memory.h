// The memory of the tensors of a batch, including the memory that a joined rank uses.
#pragma once

#include <cstddef>
#include <vector>

#include "core/backend/backend.h"
#include "core/base/aligned_buffer.h"
#include "core/collective/gather_list.h"

namespace hvd {

size_t tensor_bytes(const BatchTensor& tensor, DType dtype);
/// Returns the bytes of its memory: see BatchTensor::stored_as.
size_t stored_bytes(const BatchTensor& tensor, DType dtype);
/// Returns the bytes of one row of dim 0.
size_t row_bytes(const BatchTensor& tensor, DType dtype);

/// The rows of dim 0 that `rank` of `size` gets of `rows`: the first rows % size ranks get one
/// more.
struct Rows {
  size_t first = 0;
  size_t count = 0;
};
Rows rows_of(size_t rows, int rank, int size);

/// Returns the bytes of an output provided by the caller, on `rank` of `size`, in its memory.
size_t output_bytes(const Batch& batch, const BatchTensor& tensor, int rank, int size);

/// Appends `bytes` at `data` to a list that is only read.
void add_input(GatherList& list, const std::byte* data, size_t bytes);

/// Returns whether the run must allocate the output of an allgather or alltoall, and exchange row
/// counts first. Equal on all ranks.
bool needs_output(const BatchTensor& tensor);
/// Allocates an output of `rows` rows. Throws std::bad_alloc.
void allocate_output(BatchTensor& tensor, int64_t rows, DType dtype);

/// The memory that a reduction reads and writes. On a rank that has joined, inputs hold the neutral
/// element and results are dropped.
struct ReducedTensors {
  struct Tensor {
    const std::byte* input = nullptr;
    std::byte* output = nullptr;
    size_t bytes = 0;
  };

  /// Throws std::bad_alloc.
  explicit ReducedTensors(const Batch& batch);

  std::vector<Tensor> tensors;
  GatherList inputs, outputs;            ///< the tensors, concatenated
  std::vector<AlignedBuffer> stand_ins;  ///< memory of the tensors on a rank that has joined
};

}  // namespace hvd
