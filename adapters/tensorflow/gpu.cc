#include "adapters/tensorflow/gpu.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <mutex>

#include "adapters/tensorflow/gpu_stream.h"
#include "horovod/horovod.h"

namespace hvd::tf {
namespace {

/// How streams are found in this process.
struct Way {
  std::atomic<Streams> how{Streams::automatic};  // relaxed: set while no kernel runs
  // The others are set before the first kernel runs.
  bool reports = false;
  std::once_flag reported{};
  const StreamRow* row = nullptr;  ///< of this TensorFlow
  StreamSymbols symbols{};         ///< of this TensorFlow
  std::string problem{};           ///< why the row cannot be used; "": it can
};

// Never destroyed: kernels may run until the end of the process.
Way& way() {
  static Way& one = *new Way;
  return one;
}

void report(bool is_warning, const std::string& text) {
  if (!is_warning && !way().reports) return;
  std::call_once(way().reported, [&] {
    hvd_world world{};
    hvd_get_world(&world);
    std::fprintf(stderr, "[%d]: Horovod on TensorFlow's GPU: %s\n", world.rank, text.c_str());
  });
}

// ---- the driver, which TensorFlow has loaded

using Context = void*;

struct Driver {
  int (*retain)(Context*, int device) = nullptr;
  int (*push)(Context) = nullptr;
  int (*pop)(Context*) = nullptr;
  int (*synchronize)() = nullptr;
  int (*attribute)(void* value, int attribute, uintptr_t address) = nullptr;
  bool is_complete() const {
    return retain != nullptr && push != nullptr && pop != nullptr && synchronize != nullptr &&
           attribute != nullptr;
  }
};

template <class Function>
void take(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
}

Driver loaded_driver() {
  Driver driver;
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return driver;
  take(library, "cuDevicePrimaryCtxRetain", driver.retain);
  take(library, "cuCtxPushCurrent_v2", driver.push);
  take(library, "cuCtxPopCurrent_v2", driver.pop);
  take(library, "cuCtxSynchronize", driver.synchronize);
  take(library, "cuPointerGetAttribute", driver.attribute);
  return driver;
}

const Driver& driver() {
  static const Driver loaded = loaded_driver();
  return loaded;
}

constexpr char kNoDriver[] = "the CUDA driver (libcuda.so.1) cannot be used";
constexpr int kDeviceOrdinal = 9;  // CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL

/// The primary context of a GPU, which TensorFlow uses. Retained for ever.
Context context_of(int gpu) {
  static std::mutex mutex;
  static int retained = -1;
  static Context context = nullptr;
  const std::lock_guard lock(mutex);
  if (retained == gpu) return context;
  Context made = nullptr;
  if (driver().retain(&made, gpu) != 0) return nullptr;
  retained = gpu;
  context = made;
  return context;
}

// ---- TensorFlow's own GPUs

FoundStream find_own(Execution* execution) {
  if (!way().problem.empty()) return {.problem = way().problem.c_str()};
  return find_stream(*way().row, way().symbols, execution, gpu_api().step_id(execution));
}

std::string take_pluggable(Execution* execution, Gpu& gpu) {
  const Result result;
  gpu.stream = gpu_api().get_stream(execution, result);
  if (!result.ok()) return result.text();
  report(false, "its streams are those of a pluggable device");
  return "";
}

bool is_pluggable(Execution* execution) {
  const Result result;
  gpu_api().get_stream(execution, result);
  return result.ok();
}

std::string take_automatic(Execution* execution, Gpu& gpu) {
  const FoundStream found = find_own(execution);
  if (found.problem == nullptr) {
    gpu.stream = found.stream;
    report(false, "its streams are found by the table for this version of TensorFlow");
    return "";
  }
  const bool may_be_pluggable = way().how.load(std::memory_order_relaxed) != Streams::own;
  if (may_be_pluggable && is_pluggable(execution))
    return "this GPU is a pluggable device, which Horovod does not support. Set "
           "HOROVOD_GPU_OPERATIONS=host, so that TensorFlow copies tensors to host memory";
  gpu.is_synchronized = true;
  report(true, std::string("its stream cannot be found: ") + found.problem +
                   ". The host waits for the GPU before and after each operation, which is slow");
  return "";
}

}  // namespace

std::string why_no_gpu_kernels() {
  if (!gpu_api().is_complete()) return "this TensorFlow has no kernels for GPUs in its C interface";
  using Function = bool();
  auto* const has_cuda =
      reinterpret_cast<Function*>(framework_symbol("_ZN10tensorflow19IsGoogleCudaEnabledEv"));
  return has_cuda != nullptr && has_cuda() ? "" : "this TensorFlow is built without CUDA";
}

void prepare_gpus(const std::string& version, bool reports) {
  Way& made = way();
  made.reports = reports;
  made.row = stream_row_of(version);
  if (made.row == nullptr) {
    made.problem = "TensorFlow " + version + " is not in the table of known versions";
    return;
  }
  const auto getter = [](const char* name) {
    return reinterpret_cast<StreamSymbols::Getter>(framework_symbol(name));
  };
  made.symbols = {framework_symbol(kContextVtable), framework_symbol(made.row->stream_vtable),
                  getter(kStreamOfContext), getter(made.row->handle_of_stream)};
  if (!made.symbols.all_found())
    made.problem = "TensorFlow " + version + " does not export the classes of its streams";
}

void choose_streams(Streams how) { way().how.store(how, std::memory_order_relaxed); }

std::string find_stream_of(Execution* execution, Gpu& gpu) {
  switch (way().how.load(std::memory_order_relaxed)) {
    case Streams::automatic:
    case Streams::own:
      return take_automatic(execution, gpu);
    case Streams::pluggable:
      return take_pluggable(execution, gpu);
    case Streams::synchronized:
      break;
  }
  gpu.is_synchronized = true;
  report(false, "the host waits for it before and after each operation");
  return "";
}

std::string find_number(Execution* execution, const void* address, Gpu& gpu) {
  static std::atomic<int> last{-1};  // relaxed: a process uses one GPU
  gpu.index = last.load(std::memory_order_relaxed);
  if (address == nullptr && gpu.index >= 0) return "";
  if (address == nullptr) {
    gpu.index = gpu_api().device_id(execution);
    return "";
  }
  if (!driver().is_complete()) return kNoDriver;
  const int result =
      driver().attribute(&gpu.index, kDeviceOrdinal, reinterpret_cast<uintptr_t>(address));
  if (result != 0)
    return "a tensor on TensorFlow's GPU is not in CUDA memory: CUDA error " +
           std::to_string(result);
  last.store(gpu.index, std::memory_order_relaxed);
  return "";
}

std::string synchronize(const Gpu& gpu) {
  if (!gpu.is_synchronized) return "";
  if (!driver().is_complete()) return kNoDriver;
  const Context context = context_of(gpu.index);
  if (context == nullptr || driver().push(context) != 0)
    return "CUDA device " + std::to_string(gpu.index) + " cannot be used";
  const int result = driver().synchronize();
  Context former = nullptr;
  driver().pop(&former);
  return result == 0 ? "" : "waiting for the GPU failed with CUDA error " + std::to_string(result);
}

}  // namespace hvd::tf
