// What the stand-in driver offers beyond the driver API: to tests, which play the framework, and to
// the stand-in of NCCL. Looked up with dlsym.
#pragma once

#include <cstddef>

#include "core/device/driver_api.h"

namespace fake {

/// A range of memory that queued work reads or writes.
struct Access {
  const void* begin = nullptr;
  size_t bytes = 0;
  bool writes = false;
};

}  // namespace fake

extern "C" {
/// Queues `run(argument)`. `what` names it in messages and must live on.
void fake_cuda_enqueue(hvd::device::StreamHandle stream, const char* what,
                       const fake::Access* accesses, size_t count, void (*run)(void*),
                       void* argument);
/// +1: an operation of NCCL on this stream is in progress, so nothing may be queued; -1: no more.
void fake_cuda_hold(hvd::device::StreamHandle stream, int change);
/// Replaces FAKE_CUDA_FAIL from now on, while any threads call the driver; NULL: no longer.
void fake_cuda_fail(const char* list);
/// From now on only events order the stream behind other streams, not what the host has seen to be
/// done. So a wait that is left out is found however late work is queued.
void fake_cuda_ignore_host(hvd::device::StreamHandle stream);
/// The memory that begins there cannot be given to other processes, as that which torch allocates
/// with `expandable_segments`.
void fake_cuda_keep_private(hvd::device::DevicePointer address);
/// +1: a collective is queued on the device of the stream, so no memory may be freed; -1: no more.
/// The latter on any thread.
void fake_cuda_collective(int gpu, int change);
/// The number of the GPU in this machine, independent of CUDA_VISIBLE_DEVICES.
int fake_cuda_gpu_of(hvd::device::StreamHandle stream);
/// The GPU of the current context of this thread; -1: there is none.
int fake_cuda_current_gpu();
/// How many primary contexts are retained in this process.
int fake_cuda_retained_contexts();
}
