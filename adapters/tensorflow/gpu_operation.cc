#include "adapters/tensorflow/gpu_operation.h"

#include <atomic>

#include "adapters/tensorflow/completing.h"

namespace hvd::tf {
namespace {

/// What the callbacks of a request refer to. The runtime calls `queued` and `ended` one after the
/// other, both perhaps before hvd_submit has returned, and `ended` perhaps long after the caller is
/// gone.
struct Pending {
  GpuCaller& caller;
  hvd_handle handle = 0;
  Ending ending{};         ///< of `queued`, or of `ended` without it
  bool is_queued = false;  ///< used by the callbacks of the runtime only
  /// The return of hvd_submit, and the completion. acq_rel: the last one sees what the other wrote.
  std::atomic<int> missing{2};
  /// The call of completed(), and `ended`. acq_rel: the last one deletes what the other used.
  std::atomic<int> users{2};
};

std::atomic<bool> waits_for_gpus{false};  // relaxed: says nothing about other memory

void drop(Pending* pending) {
  if (pending->users.fetch_sub(1, std::memory_order_acq_rel) == 1) delete pending;
}

void arrive(Pending* pending) {
  if (pending->missing.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  completions().add([pending] {
    const hvd_handle handle = pending->handle;
    hvd_wait(handle);  // completes with the callback, or right after it
    pending->caller.completed(handle, pending->ending);
    hvd_free(handle);
    drop(pending);
  });
}

void note_queued(void* owner, const hvd_ending* ending) {
  auto* const pending = static_cast<Pending*>(owner);
  pending->is_queued = true;
  pending->ending = copy_of(*ending);
  arrive(pending);
}

void note_ended(void* owner, const hvd_ending* ending) {
  auto* const pending = static_cast<Pending*>(owner);
  if (!pending->is_queued) {
    pending->ending = copy_of(*ending);
    arrive(pending);
  }
  drop(pending);
}

const char* allocate(void* owner, int32_t index, const int64_t* shape, int32_t dimensions,
                     hvd_tensor* output) {
  return static_cast<Pending*>(owner)->caller.allocate(
      index, {shape, static_cast<size_t>(dimensions)}, output);
}

}  // namespace

void wait_for_gpus(bool waits) { waits_for_gpus.store(waits, std::memory_order_relaxed); }

hvd_status submit_on_gpu(hvd_request request, GpuCaller& caller) {
  auto* const pending = new Pending{.caller = caller};
  request.owner = pending;
  if (!waits_for_gpus.load(std::memory_order_relaxed)) request.queued = note_queued;
  request.ended = note_ended;
  request.allocate = allocate;
  const hvd_status status = hvd_submit(&request, &pending->handle);
  if (status == HVD_OK) {
    arrive(pending);
  } else {
    delete pending;
  }
  return status;
}

}  // namespace hvd::tf
