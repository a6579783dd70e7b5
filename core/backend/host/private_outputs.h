// Private memory for outputs that overlap other memory of their batch. The run writes these outputs
// to private memory and stores them after the batch, in the order of the tensors. So every
// operation reads its input as it was before the batch, and the last tensor wins if outputs
// overlap, independent of the algorithm and of timing. Made by HostBackend.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "core/backend/backend.h"
#include "core/base/aligned_buffer.h"

namespace hvd {

/// Owned by a Run. The memory of the tensors must outlive it.
class PrivateOutputs {
 public:
  /// Replaces the outputs of `tensors` (indices into `batch`, ascending) by private memory. Throws
  /// std::bad_alloc.
  PrivateOutputs(Batch& batch, const std::vector<size_t>& tensors, int rank, int size);

  /// Copies about one segment to the real outputs. Returns true when all is copied.
  bool store_some();

 private:
  struct Output {
    AlignedBuffer memory;
    std::byte* destination = nullptr;
  };
  std::vector<Output> outputs_;
  size_t stored_outputs_ = 0;
  size_t stored_bytes_ = 0;  ///< of the next output
};

/// Returns a Run that runs `run`, which was started with `outputs`, and then stores them.
std::unique_ptr<Run> run_with(PrivateOutputs outputs, std::unique_ptr<Run> run);

}  // namespace hvd
