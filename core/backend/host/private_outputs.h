// Outputs of a batch that overlap other memory of it: the batch writes them to memory of the run's
// own, and they are stored when the batch has been run, in the order of its tensors. So every
// operation reads its input as it was when the batch began, and where outputs overlap, the last
// tensor decides, whatever algorithm runs and in whatever order bytes arrive. Made by HostBackend.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "core/backend/backend.h"
#include "core/base/aligned_buffer.h"

namespace hvd {

/// A resource, owned by a Run. The memory of the tensors outlives it.
class PrivateOutputs {
 public:
  /// Gives the `tensors` of `batch` (indices, ascending) private outputs. Throws std::bad_alloc.
  PrivateOutputs(Batch& batch, const std::vector<size_t>& tensors, int rank, int size);

  /// Stores about a segment of what is in them where it belongs; true when nothing is left.
  bool store_some();

 private:
  struct Output {
    AlignedBuffer memory;
    std::byte* destination = nullptr;
  };
  std::vector<Output> outputs_;
  size_t stored_outputs_ = 0;
  size_t stored_bytes_ = 0;  ///< of the next one
};

/// `run`, which has been started with `outputs`, and then their storing.
std::unique_ptr<Run> run_with(PrivateOutputs outputs, std::unique_ptr<Run> run);

}  // namespace hvd
