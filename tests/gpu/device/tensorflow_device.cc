// A device "GPU" for a TensorFlow without CUDA: memory, streams and events are those of the
// stand-in driver. Loaded by tests through load_pluggable_device_library. An SP_Stream is a stream
// of the driver.
//
// All copies are queued work, so the driver checks that each access waits for what it needs.
#include <tensorflow/c/experimental/stream_executor/stream_executor.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <vector>

#include "tests/gpu/device/stand_in.h"

struct SP_Event_st {
  hvd::device::EventHandle handle;
  int gpu;
};
struct SP_Timer_st {};

namespace hvd::test {
namespace {

StreamHandle handle_of(SP_Stream stream) { return reinterpret_cast<StreamHandle>(stream); }

/// Does `work` with the context of the device current.
void on(const SP_Device* device, TF_Status* status, const std::function<void()>& work) {
  try {
    const OnGpu current(device->ordinal);
    work();
    if (status != nullptr) TF_SetStatus(status, TF_OK, "");
  } catch (const std::exception& error) {
    if (status != nullptr) TF_SetStatus(status, TF_INTERNAL, error.what());
  }
}

// ---- memory

void allocate_memory(const SP_Device* device, uint64_t size, int64_t, SP_DeviceMemoryBase* memory) {
  memory->struct_size = SP_DEVICE_MEMORY_BASE_STRUCT_SIZE;
  memory->opaque = nullptr;
  on(device, nullptr, [=] { memory->opaque = allocate(size); });
  memory->size = memory->opaque == nullptr ? 0 : size;
}
/// TensorFlow frees when the process ends.
void free_memory(const SP_Device*, SP_DeviceMemoryBase*) {}
void* allocate_host(const SP_Device*, uint64_t size) { return std::malloc(size); }
void free_host(const SP_Device*, void* memory) { std::free(memory); }
TF_Bool no_statistics(const SP_Device*, SP_AllocatorStats*) { return 0; }
TF_Bool memory_usage(const SP_Device*, int64_t* free, int64_t* total) {
  *free = *total = int64_t{64} << 20;
  return 1;
}

// ---- streams and events

/// The stream on which TensorFlow computes is the first that it makes.
struct Gate {
  std::atomic<StreamHandle> stream{nullptr};
  std::atomic<int> gpu{0};
  std::atomic<bool> closed{false};
};
Gate gate;

void create_stream(const SP_Device* device, SP_Stream* stream, TF_Status* status) {
  on(device, status, [=] {
    const StreamHandle made = make_stream();
    StreamHandle none = nullptr;
    if (gate.stream.compare_exchange_strong(none, made)) gate.gpu = device->ordinal;
    *stream = reinterpret_cast<SP_Stream>(made);
  });
}
void destroy_stream(const SP_Device*, SP_Stream) {}
void depend(const SP_Device* device, SP_Stream dependent, SP_Stream other, TF_Status* status) {
  on(device, status, [=] {
    const EventHandle event = make_event();
    record(event, handle_of(other));
    wait_for(handle_of(dependent), event);
    destroy(event);
  });
}
void stream_status(const SP_Device*, SP_Stream, TF_Status* status) {
  TF_SetStatus(status, TF_OK, "");
}

void create_event(const SP_Device* device, SP_Event* event, TF_Status* status) {
  on(device, status, [=] { *event = new SP_Event_st{make_event(), device->ordinal}; });
}
void destroy_event(const SP_Device* device, SP_Event event) {
  on(device, nullptr, [=] { destroy(event->handle); });
  delete event;
}
SE_EventStatus event_status(const SP_Device* device, SP_Event event) {
  bool done = false;
  on(device, nullptr, [&] { done = is_done(event->handle); });
  return done ? SE_EVENT_COMPLETE : SE_EVENT_PENDING;
}
void record_event(const SP_Device* device, SP_Stream stream, SP_Event event, TF_Status* status) {
  on(device, status, [=] { record(event->handle, handle_of(stream)); });
}
void wait_for_event(const SP_Device* device, SP_Stream stream, SP_Event event, TF_Status* status) {
  on(device, status, [=] { wait_for(handle_of(stream), event->handle); });
}
void block_for_event(const SP_Device* device, SP_Event event, TF_Status* status) {
  while (event_status(device, event) != SE_EVENT_COMPLETE) {
  }
  TF_SetStatus(status, TF_OK, "");
}
void block_for_stream(const SP_Device* device, SP_Stream stream, TF_Status* status) {
  on(device, status, [=] { finish(handle_of(stream)); });
}
void synchronize(const SP_Device* device, TF_Status* status) {
  on(device, status, [] { synchronize_context(); });
}

void create_timer(const SP_Device*, SP_Timer* timer, TF_Status*) { *timer = new SP_Timer_st; }
void destroy_timer(const SP_Device*, SP_Timer timer) { delete timer; }
void use_timer(const SP_Device*, SP_Stream, SP_Timer, TF_Status*) {}
uint64_t no_time(SP_Timer) { return 0; }

// ---- copies

using Accesses = std::vector<fake::Access>;

/// What was last copied to the GPU.
struct LastCopied {
  std::atomic<const void*> memory{nullptr};
  std::atomic<uint64_t> bytes{0};
};
LastCopied last_copied;

/// Memory of the host is not among the accesses: TensorFlow copies any of it.
void copy(const SP_Device* device, SP_Stream stream, void* to, const void* from, uint64_t bytes,
          const Accesses& accesses, TF_Status* status) {
  on(device, status, [&] {
    enqueue(handle_of(stream), "a copy of TensorFlow", accesses,
            [=] { std::memmove(to, from, bytes); });
  });
}
void to_host(const SP_Device* device, SP_Stream stream, void* to, const SP_DeviceMemoryBase* from,
             uint64_t bytes, TF_Status* status) {
  copy(device, stream, to, from->opaque, bytes, {{from->opaque, bytes, false}}, status);
}
void to_device(const SP_Device* device, SP_Stream stream, SP_DeviceMemoryBase* to, const void* from,
               uint64_t bytes, TF_Status* status) {
  last_copied.memory = to->opaque;
  last_copied.bytes = bytes;
  copy(device, stream, to->opaque, from, bytes, {{to->opaque, bytes, true}}, status);
}
void within(const SP_Device* device, SP_Stream stream, SP_DeviceMemoryBase* to,
            const SP_DeviceMemoryBase* from, uint64_t bytes, TF_Status* status) {
  copy(device, stream, to->opaque, from->opaque, bytes,
       {{from->opaque, bytes, false}, {to->opaque, bytes, true}}, status);
}

// On the legacy stream, which waits for nobody: TensorFlow knows that nobody uses the memory.
void to_host_now(const SP_Device* device, void* to, const SP_DeviceMemoryBase* from, uint64_t bytes,
                 TF_Status* status) {
  to_host(device, nullptr, to, from, bytes, status);
  block_for_stream(device, nullptr, status);
}
void to_device_now(const SP_Device* device, SP_DeviceMemoryBase* to, const void* from,
                   uint64_t bytes, TF_Status* status) {
  to_device(device, nullptr, to, from, bytes, status);
  block_for_stream(device, nullptr, status);
}
void within_now(const SP_Device* device, SP_DeviceMemoryBase* to, const SP_DeviceMemoryBase* from,
                uint64_t bytes, TF_Status* status) {
  within(device, nullptr, to, from, bytes, status);
  block_for_stream(device, nullptr, status);
}

void fill(const SP_Device* device, SP_Stream stream, SP_DeviceMemoryBase* to, uint8_t value,
          uint64_t bytes, TF_Status* status) {
  on(device, status, [=, memory = to->opaque] {
    enqueue(handle_of(stream), "a fill of TensorFlow", {{memory, bytes, true}},
            [=] { std::memset(memory, value, bytes); });
  });
}
void fill_with_zeros(const SP_Device* device, SP_Stream stream, SP_DeviceMemoryBase* to,
                     uint64_t bytes, TF_Status* status) {
  fill(device, stream, to, 0, bytes, status);
}
void fill_words(const SP_Device*, SP_Stream, SP_DeviceMemoryBase*, uint32_t, uint64_t,
                TF_Status* status) {
  TF_SetStatus(status, TF_UNIMPLEMENTED, "memset32");
}

TF_Bool call_on_host(const SP_Device* device, SP_Stream stream, SE_StatusCallbackFn function,
                     void* argument) {
  on(device, nullptr, [=] {
    enqueue(handle_of(stream), "a callback of TensorFlow", {}, [=] {
      TF_Status* const status = TF_NewStatus();
      function(argument, status);
      TF_DeleteStatus(status);
    });
  });
  return 1;
}

void make_executor(const SP_Platform*, SE_CreateStreamExecutorParams* made, TF_Status* status) {
  SP_StreamExecutor& se = *made->stream_executor;
  se = {SP_STREAMEXECUTOR_STRUCT_SIZE};
  se.allocate = allocate_memory;
  se.deallocate = free_memory;
  se.host_memory_allocate = allocate_host;
  se.host_memory_deallocate = free_host;
  se.get_allocator_stats = no_statistics;
  se.device_memory_usage = memory_usage;
  se.create_stream = create_stream;
  se.destroy_stream = destroy_stream;
  se.create_stream_dependency = depend;
  se.get_stream_status = stream_status;
  se.create_event = create_event;
  se.destroy_event = destroy_event;
  se.get_event_status = event_status;
  se.record_event = record_event;
  se.wait_for_event = wait_for_event;
  se.create_timer = create_timer;
  se.destroy_timer = destroy_timer;
  se.start_timer = use_timer;
  se.stop_timer = use_timer;
  se.memcpy_dtoh = to_host;
  se.memcpy_htod = to_device;
  se.memcpy_dtod = within;
  se.sync_memcpy_dtoh = to_host_now;
  se.sync_memcpy_htod = to_device_now;
  se.sync_memcpy_dtod = within_now;
  se.block_host_for_event = block_for_event;
  se.block_host_until_done = block_for_stream;
  se.synchronize_all_activity = test::synchronize;
  se.mem_zero = fill_with_zeros;
  se.memset = fill;
  se.memset32 = fill_words;
  se.host_callback = call_on_host;
  TF_SetStatus(status, TF_OK, "");
}

// ---- the platform

void count_devices(const SP_Platform*, int* count, TF_Status* status) {
  *count = gpu_count();
  TF_SetStatus(status, TF_OK, "");
}
void create_device(const SP_Platform*, SE_CreateDeviceParams* made, TF_Status* status) {
  *made->device = {SP_DEVICE_STRUCT_SIZE};
  made->device->ordinal = made->ordinal;
  made->device->hardware_name = "stand-in";
  made->device->device_vendor = "tests";
  made->device->pci_bus_id = "0000:00:00.0";
  TF_SetStatus(status, TF_OK, "");
}
void destroy_device(const SP_Platform*, SP_Device*) {}
void create_functions(const SP_Platform*, SE_CreateDeviceFnsParams* made, TF_Status* status) {
  *made->device_fns = {SP_DEVICE_FNS_STRUCT_SIZE};
  TF_SetStatus(status, TF_OK, "");
}
void destroy_functions(const SP_Platform*, SP_DeviceFns*) {}
void destroy_executor(const SP_Platform*, SP_StreamExecutor*) {}
void create_timers(const SP_Platform*, SP_TimerFns* made, TF_Status* status) {
  made->nanoseconds = no_time;
  TF_SetStatus(status, TF_OK, "");
}
void destroy_timers(const SP_Platform*, SP_TimerFns*) {}
void destroy_platform(SP_Platform*) {}
void destroy_platform_functions(SP_PlatformFns*) {}

}  // namespace
}  // namespace hvd::test

/// Later work on the stream on which TensorFlow computes does not begin until it is opened. With
/// `writes`, the work that it waits for stores to the memory that was last copied to the GPU.
extern "C" __attribute__((visibility("default"))) void stand_in_close(int writes) {
  using namespace hvd::test;
  const OnGpu current(gate.gpu);
  gate.closed = true;
  Accesses accesses;
  if (writes != 0) accesses.push_back({last_copied.memory, last_copied.bytes, true});
  enqueue(gate.stream, "a kernel of TensorFlow", accesses, [] { gate.closed.wait(true); });
}
extern "C" __attribute__((visibility("default"))) void stand_in_open() {
  hvd::test::gate.closed = false;
  hvd::test::gate.closed.notify_all();
}

extern "C" __attribute__((visibility("default"))) void SE_InitPlugin(
    SE_PlatformRegistrationParams* made, TF_Status* status) {
  using namespace hvd::test;
  *made->platform = {SP_PLATFORM_STRUCT_SIZE};
  made->platform->name = "STANDIN";
  made->platform->type = "GPU";
  made->platform->use_bfc_allocator = 1;  // reuses memory in the order of the stream, at once
  made->platform->force_memory_growth = 1;
  SP_PlatformFns& functions = *made->platform_fns;
  functions.get_device_count = count_devices;
  functions.create_device = create_device;
  functions.destroy_device = destroy_device;
  functions.create_device_fns = create_functions;
  functions.destroy_device_fns = destroy_functions;
  functions.create_stream_executor = make_executor;
  functions.destroy_stream_executor = destroy_executor;
  functions.create_timer_fns = create_timers;
  functions.destroy_timer_fns = destroy_timers;
  made->destroy_platform = destroy_platform;
  made->destroy_platform_fns = destroy_platform_functions;
  TF_SetStatus(status, TF_OK, "");
}
