#include "tests/gpu/device/stand_in.h"

#include <dlfcn.h>

#include <memory>
#include <mutex>
#include <stdexcept>
#include <utility>

namespace hvd::test {
namespace {

using device::ContextHandle;
using device::DevicePointer;
using device::kNonBlockingStream;
using device::kSuccess;

/// The functions of the driver that are called here.
struct Table {
  device::DriverTable driver{};
  Result (*stream_synchronize)(StreamHandle stream) = nullptr;
  Result (*context_synchronize)() = nullptr;
  decltype(fake_cuda_enqueue)* enqueue = nullptr;
  int gpus = 0;
  std::string problem{};
};

template <class Function>
void find(void* library, const char* name, Function*& field, Table& table) {
  field = reinterpret_cast<Function*>(::dlsym(library, name));
  if (field == nullptr) table.problem = std::string("the driver lacks ") + name;
}

Table load() {
  Table table;
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    table.problem = ::dlerror();
    return table;
  }
  device::DriverTable& driver = table.driver;
  find(library, "cuInit", driver.init, table);
  find(library, "cuDeviceGetCount", driver.device_get_count, table);
  find(library, "cuDevicePrimaryCtxRetain", driver.primary_context_retain, table);
  find(library, "cuCtxPushCurrent_v2", driver.context_push, table);
  find(library, "cuCtxPopCurrent_v2", driver.context_pop, table);
  find(library, "cuStreamCreateWithPriority", driver.stream_create, table);
  find(library, "cuStreamQuery", driver.stream_query, table);
  find(library, "cuStreamWaitEvent", driver.stream_wait_event, table);
  find(library, "cuEventCreate", driver.event_create, table);
  find(library, "cuEventRecord", driver.event_record, table);
  find(library, "cuEventQuery", driver.event_query, table);
  find(library, "cuEventDestroy_v2", driver.event_destroy, table);
  find(library, "cuMemAlloc_v2", driver.memory_allocate, table);
  find(library, "cuStreamSynchronize", table.stream_synchronize, table);
  find(library, "cuCtxSynchronize", table.context_synchronize, table);
  find(library, "fake_cuda_enqueue", table.enqueue, table);
  if (table.problem.empty() && driver.init(0) == kSuccess) driver.device_get_count(&table.gpus);
  return table;
}

const Table& table() {
  static const Table loaded = load();
  if (!loaded.problem.empty()) throw std::runtime_error(loaded.problem);
  return loaded;
}

const device::DriverTable& driver() { return table().driver; }

ContextHandle context_of(int gpu) {
  static std::mutex mutex;
  static auto* const contexts = new std::vector<ContextHandle>;
  const std::lock_guard lock(mutex);
  if (gpu < 0 || gpu >= table().gpus) throw std::runtime_error("invalid device ordinal");
  contexts->resize(static_cast<size_t>(table().gpus));
  ContextHandle& context = (*contexts)[static_cast<size_t>(gpu)];
  if (context == nullptr)
    check(driver().primary_context_retain(&context, gpu), "cuDevicePrimaryCtxRetain");
  return context;
}

}  // namespace

void check(Result result, const char* function) {
  if (result != kSuccess)
    throw std::runtime_error(std::string(function) + " failed with " + std::to_string(result));
}

int gpu_count() { return table().gpus; }

OnGpu::OnGpu(int gpu) { check(driver().context_push(context_of(gpu)), "cuCtxPushCurrent"); }

OnGpu::~OnGpu() {
  ContextHandle former = nullptr;
  driver().context_pop(&former);
}

StreamHandle make_stream() {
  StreamHandle stream = nullptr;
  check(driver().stream_create(&stream, kNonBlockingStream, 0), "cuStreamCreateWithPriority");
  return stream;
}

bool is_done(StreamHandle stream) { return driver().stream_query(stream) == kSuccess; }
void finish(StreamHandle stream) {
  check(table().stream_synchronize(stream), "cuStreamSynchronize");
}

void synchronize_context() { check(table().context_synchronize(), "cuCtxSynchronize"); }

EventHandle make_event() {
  EventHandle event = nullptr;
  check(driver().event_create(&event, device::kEventDisablesTiming), "cuEventCreate");
  return event;
}

void record(EventHandle event, StreamHandle stream) {
  check(driver().event_record(event, stream), "cuEventRecord");
}
void wait_for(StreamHandle stream, EventHandle event) {
  check(driver().stream_wait_event(stream, event, 0), "cuStreamWaitEvent");
}
bool is_done(EventHandle event) { return driver().event_query(event) == kSuccess; }
void destroy(EventHandle event) { driver().event_destroy(event); }

void enqueue(StreamHandle stream, const char* what, const std::vector<fake::Access>& accesses,
             std::function<void()> work) {
  const auto run = [](void* argument) {
    const std::unique_ptr<std::function<void()>> task(
        static_cast<std::function<void()>*>(argument));
    (*task)();
  };
  table().enqueue(stream, what, accesses.data(), accesses.size(), run,
                  new std::function<void()>(std::move(work)));
}

void* allocate(size_t bytes) {
  DevicePointer address = 0;
  check(driver().memory_allocate(&address, bytes), "cuMemAlloc");
  return reinterpret_cast<void*>(address);
}

}  // namespace hvd::test
