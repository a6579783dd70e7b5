// The stand-in for libcuda.so.1: streams, events, captures.
#include <sys/mman.h>
#include <unistd.h>

#include <thread>
#include <utility>
#include <vector>

#include "tests/fake_cuda/shared_event.h"
#include "tests/fake_cuda/state.h"

using namespace hvd::device;
using fake::state;

FAKE_EXPORT Result cuStreamCreateWithPriority(StreamHandle* stream, unsigned flags, int priority) {
  FAKE_CALL(cuStreamCreateWithPriority);
  if (flags != kNonBlockingStream)
    fake::misuse("a stream that synchronizes with the default stream is not simulated");
  if (priority > 0 || priority < -5) return kInvalidValue;
  *stream = fake::new_stream(fake::current_context());
  return kSuccess;
}

FAKE_EXPORT Result cuStreamDestroy_v2(StreamHandle stream) {
  FAKE_CALL(cuStreamDestroy_v2);
  for (const auto& one : state().streams) {
    if (one.get() != stream) continue;
    if (one->destroyed) fake::misuse("the stream was destroyed before");
    one->destroyed = true;  // its work still runs
    return kSuccess;
  }
  fake::misuse("this is no stream");
}

FAKE_EXPORT Result cuStreamQuery(StreamHandle stream) {
  FAKE_CALL(cuStreamQuery);
  fake::not_during_capture();
  stream = fake::resolve(stream);
  fake::must_be_current(stream->context, "stream");
  if (!stream->queue.empty()) return kNotReady;
  fake::host_sees(stream->clock);
  return kSuccess;
}

FAKE_EXPORT Result cuStreamWaitEvent(StreamHandle stream, EventHandle event, unsigned flags) {
  FAKE_CALL(cuStreamWaitEvent);
  if (flags != 0) return kInvalidValue;
  stream = fake::resolve(stream);
  event = fake::checked(event);
  fake::must_be_current(stream->context, "stream");
  if (event->captured && stream->capture == CaptureStatus::none)
    fake::misuse("the event was recorded on a stream that is being captured");
  if (event->shared != nullptr) fake::enqueue_shared_wait(stream, event);
  if (event->mark == nullptr) return kSuccess;  // never recorded: no order
  stream->clock.join(event->clock);
  fake::enqueue(stream, "cuStreamWaitEvent", {}, [mark = event->mark] { mark->wait(); });
  return kSuccess;
}

FAKE_EXPORT Result cuStreamIsCapturing(StreamHandle stream, CaptureStatus* status) {
  FAKE_CALL(cuStreamIsCapturing);
  *status = fake::resolve(stream)->capture;
  return kSuccess;
}

FAKE_EXPORT Result cuThreadExchangeStreamCaptureMode(CaptureMode* mode) {
  FAKE_CALL(cuThreadExchangeStreamCaptureMode);
  std::swap(fake::thread().mode, *mode);
  return kSuccess;
}

// ---- events

FAKE_EXPORT Result cuEventCreate(EventHandle* event, unsigned flags) {
  FAKE_CALL(cuEventCreate);
  const bool for_others = (flags & kEventForOtherProcesses) != 0;
  if (for_others && (flags & kEventDisablesTiming) == 0) return kInvalidValue;
  state().events.push_back(
      std::make_unique<EventObject>(EventObject{fake::current_context(), flags}));
  *event = state().events.back().get();
  if (for_others) fake::make_shared_part(*event);
  return kSuccess;
}

FAKE_EXPORT Result cuEventRecord(EventHandle event, StreamHandle stream) {
  FAKE_CALL(cuEventRecord);
  stream = fake::resolve(stream);
  event = fake::checked(event);
  fake::must_be_current(event->context, "event");
  if (stream->context != event->context)
    fake::misuse("wrong stream: it is of GPU " + std::to_string(stream->context->index) +
                 ", the event of GPU " + std::to_string(event->context->index));
  if (event->imported) return kInvalidHandle;
  event->captured = stream->capture != CaptureStatus::none;
  const auto mark = std::make_shared<fake::Mark>();
  if (event->shared != nullptr) fake::begin_shared_record(event, stream);
  const uint64_t number = fake::shared_number(event);
  fake::enqueue(stream, "cuEventRecord", {}, [mark, shared = event->shared, number] {
    mark->finish();
    fake::finish_shared_record(shared, number);
  });
  event->mark = mark;
  event->clock = stream->clock;
  event->stream = stream->number;
  return kSuccess;
}

FAKE_EXPORT Result cuEventQuery(EventHandle event) {
  FAKE_CALL(cuEventQuery);
  fake::not_during_capture();
  event = fake::checked(event);
  fake::must_be_current(event->context, "event");
  if (event->imported) return fake::shared_done(event) ? kSuccess : kNotReady;
  if (event->mark == nullptr) return kSuccess;
  if (!event->mark->done()) return kNotReady;
  fake::host_sees(event->clock);
  return kSuccess;
}

FAKE_EXPORT Result cuEventDestroy_v2(EventHandle event) {
  FAKE_CALL(cuEventDestroy_v2);
  fake::checked(event)->destroyed = true;
  return kSuccess;
}

FAKE_EXPORT Result cuEventElapsedTime(float* milliseconds, EventHandle begin, EventHandle end) {
  FAKE_CALL(cuEventElapsedTime);
  for (const EventHandle event : {fake::checked(begin), fake::checked(end)}) {
    if ((event->flags & kEventDisablesTiming) != 0 || event->mark == nullptr) return kInvalidHandle;
    if (!event->mark->done()) return kNotReady;
  }
  const std::chrono::duration<float, std::milli> time = end->mark->time() - begin->mark->time();
  *milliseconds = time.count();
  return kSuccess;
}

// ---- what frameworks call: not in the table of the runtime

FAKE_EXPORT Result cuStreamSynchronize(StreamHandle stream) {
  const fake::Call call("cuStreamSynchronize");
  fake::Queue* queue = nullptr;
  {
    const std::lock_guard lock(state().mutex);
    fake::not_during_capture();
    queue = &fake::resolve(stream)->queue;
  }
  queue->drain();
  const std::lock_guard lock(state().mutex);
  fake::host_sees(fake::resolve(stream)->clock);
  return kSuccess;
}

FAKE_EXPORT Result cuCtxSynchronize() {
  const fake::Call call("cuCtxSynchronize");
  if (const auto failure = fake::begin("cuCtxSynchronize")) return *failure;
  std::vector<std::pair<StreamHandle, fake::Clock>> streams;
  {
    const std::lock_guard lock(state().mutex);
    fake::not_during_capture();
    for (const auto& stream : state().streams) {
      if (stream->context == fake::current_context() && !stream->destroyed)
        streams.emplace_back(stream.get(), stream->clock);
    }
  }
  for (const auto& [stream, clock] : streams) stream->queue.drain();
  const std::lock_guard lock(state().mutex);
  for (const auto& [stream, clock] : streams) fake::host_sees(clock);
  return kSuccess;
}

FAKE_EXPORT Result cuStreamBeginCapture_v2(StreamHandle stream, CaptureMode mode) {
  FAKE_CALL(cuStreamBeginCapture_v2);
  fake::resolve(stream)->capture = CaptureStatus::active;
  state().captures += mode == CaptureMode::global ? 1 : 0;
  return kSuccess;
}

/// Drops the graph.
FAKE_EXPORT Result cuStreamEndCapture(StreamHandle stream, void** graph) {
  FAKE_CALL(cuStreamEndCapture);
  fake::resolve(stream)->capture = CaptureStatus::none;
  state().captures = 0;
  *graph = nullptr;
  return kSuccess;
}

FAKE_EXPORT void fake_cuda_enqueue(StreamHandle stream, const char* what,
                                   const fake::Access* accesses, size_t count, void (*run)(void*),
                                   void* argument) {
  const fake::Call call(what);
  const std::lock_guard lock(state().mutex);
  stream = fake::resolve(stream);
  fake::must_be_current(stream->context, "stream");
  fake::enqueue(stream, what, {accesses, count}, [run, argument] { run(argument); });
}

FAKE_EXPORT void fake_cuda_hold(StreamHandle stream, int change) {
  const std::lock_guard lock(state().mutex);
  fake::resolve(stream)->holds += change;
}

FAKE_EXPORT void fake_cuda_fail(const char* list) { fake::plan_failures(list); }

FAKE_EXPORT void fake_cuda_ignore_host(StreamHandle stream) {
  const std::lock_guard lock(state().mutex);
  fake::resolve(stream)->ignores_host = true;
  state().keeps_accesses = true;
}

FAKE_EXPORT int fake_cuda_gpu_of(StreamHandle stream) {
  const std::lock_guard lock(state().mutex);
  return fake::resolve(stream)->context->gpu;
}

FAKE_EXPORT void fake_cuda_collective(int gpu, int change) {
  for (const auto& context : state().contexts) {  // does not change after cuInit
    if (context->gpu == gpu) context->collectives.fetch_add(change);
  }
}
