// The stand-in driver as a framework uses it: contexts, streams, memory, queued work.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "core/device/driver_api.h"
#include "tests/fake_cuda/fake_cuda.h"

namespace hvd::test {

using device::EventHandle;
using device::Result;
using device::StreamHandle;

/// Throws std::runtime_error with the name of the function unless `result` is success.
void check(Result result, const char* function);

/// How many GPUs this process sees; 0 without a driver.
int gpu_count();

/// Makes the primary context of a GPU current on this thread until its end.
class OnGpu {
 public:
  explicit OnGpu(int gpu);
  ~OnGpu();
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;
};

// ---- all with the context of the GPU current

StreamHandle make_stream();
bool is_done(StreamHandle stream);
void finish(StreamHandle stream);
/// Waits for all work of the GPU.
void synchronize_context();
EventHandle make_event();
void record(EventHandle event, StreamHandle stream);
void wait_for(StreamHandle stream, EventHandle event);
bool is_done(EventHandle event);
void destroy(EventHandle event);

/// `work` accesses exactly `accesses`. `what` is a literal.
void enqueue(StreamHandle stream, const char* what, const std::vector<fake::Access>& accesses,
             std::function<void()> work);

/// Throws std::runtime_error if there is no room.
void* allocate(size_t bytes);

}  // namespace hvd::test
