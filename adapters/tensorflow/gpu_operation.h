// An operation on GPU memory, from its submission to its last callback.
#pragma once

#include <cstdint>
#include <span>

#include "adapters/tensorflow/ending.h"
#include "horovod/horovod.h"

namespace hvd::tf {

/// Who submits an operation on GPU memory.
class GpuCaller {
 public:
  virtual ~GpuCaller() = default;
  /// As `allocate` of a request. On any thread, before completed().
  virtual const char* allocate(int32_t index, std::span<const int64_t> shape,
                               hvd_tensor* output) = 0;
  /// Called once, on a thread of completions(), when the operation has failed, is queued on the
  /// GPU, or is done there. `handle` is valid during the call and has completed. May delete this.
  virtual void completed(hvd_handle handle, const Ending& ending) = 0;
};

/// From now on, operations complete when the GPU is done: the loss of a rank before that is an
/// error of the operation. Any thread.
void wait_for_gpus(bool waits);

/// Submits a request without callbacks. On an error, the caller is not called.
hvd_status submit_on_gpu(hvd_request request, GpuCaller& caller);

}  // namespace hvd::tf
