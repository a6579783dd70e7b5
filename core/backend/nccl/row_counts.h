// The rows that ranks send each other in an allgather or alltoall, and so the sizes of outputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/backend/backend.h"
#include "core/backend/host/batch_memory.h"
#include "core/base/assert.h"

namespace hvd::nccl {

/// Row counts of all ranks. Ranks and tensors are numbered from 0.
class RowCounts {
 public:
  /// Without counts, for other operations.
  RowCounts() = default;
  /// `counts`: allgather: rows of each tensor on each rank, [rank, tensor]. alltoall: rows from
  /// each rank to each rank, [from, to].
  RowCounts(OperationKind kind, int size, std::vector<int64_t> counts)
      : gathers_(kind == OperationKind::allgather),
        ranks_(static_cast<size_t>(size)),
        counts_(std::move(counts)) {
    HVD_ASSERT(counts_.size() % ranks_ == 0);
  }

  /// Rows of `tensor` that `to` gets from `from`.
  int64_t sent(size_t from, size_t to, size_t tensor) const {
    return counts_[from * (counts_.size() / ranks_) + (gathers_ ? tensor : to)];
  }
  /// Rows of the output for `tensor` on `to`.
  int64_t received(size_t to, size_t tensor) const {
    int64_t sum = 0;
    for (size_t from = 0; from < ranks_; ++from) sum += sent(from, to, tensor);
    return sum;
  }

 private:
  bool gathers_ = false;
  size_t ranks_ = 0;
  std::vector<int64_t> counts_;
};

/// The bytes of the outputs on `rank` of `size`, one per tensor. `rows`: of an allgather or
/// alltoall.
inline std::vector<size_t> output_sizes(const Batch& batch, const RowCounts& rows, int rank,
                                        int size) {
  std::vector<size_t> sizes;
  for (size_t i = 0; i < batch.tensors.size(); ++i) {
    const BatchTensor& tensor = batch.tensors[i];
    sizes.push_back(has_free_rows(batch.operation.kind)
                        ? static_cast<size_t>(rows.received(static_cast<size_t>(rank), i)) *
                              row_bytes(tensor, batch.operation.dtype)
                        : output_bytes(batch, tensor, rank, size));
  }
  return sizes;
}

}  // namespace hvd::nccl
