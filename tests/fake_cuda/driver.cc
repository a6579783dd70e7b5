// The stand-in for libcuda.so.1: initialization, GPUs, contexts.
//
//   FAKE_CUDA_DEVICES         GPUs of the machine (2)
//   FAKE_CUDA_DRIVER_VERSION  what cuDriverGetVersion tells (12090)
//   FAKE_CUDA_MEMORY_MB       memory per GPU (256)
//   FAKE_CUDA_DELAY_US        longest delay before each piece of work (300)
//   FAKE_CUDA_SEED            of the delays (1)
//   FAKE_CUDA_MIG=1           all are instances of one GPU
//   FAKE_CUDA_STUCK=1         streams that are made now run nothing
//   FAKE_CUDA_FAIL            function=code[@n],... see settings.h
//   CUDA_VISIBLE_DEVICES      as with CUDA
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <sstream>

#include "tests/fake_cuda/state.h"

using namespace hvd::device;
using fake::state;

namespace {

/// The GPUs of the machine that this process sees.
std::vector<int> visible_gpus() {
  const int all = static_cast<int>(fake::number("FAKE_CUDA_DEVICES", 2));
  std::vector<int> visible;
  if (::getenv("CUDA_VISIBLE_DEVICES") == nullptr) {
    for (int gpu = 0; gpu < all; ++gpu) visible.push_back(gpu);
    return visible;
  }
  std::istringstream listed(fake::text("CUDA_VISIBLE_DEVICES"));
  std::string entry;
  while (std::getline(listed, entry, ',')) {
    const int gpu = std::atoi(entry.c_str());
    if (gpu < 0 || gpu >= all) break;  // CUDA ignores this entry and those behind it
    visible.push_back(gpu);
  }
  return visible;
}

bool is_mig() { return fake::number("FAKE_CUDA_MIG", 0) != 0; }

ContextHandle context_of(Ordinal device) {
  const auto index = static_cast<size_t>(device);
  return index < state().contexts.size() ? state().contexts[index].get() : nullptr;
}

struct Named {
  Result result;
  const char* name;
  const char* text;
};
constexpr Named kNamed[] = {
    {kSuccess, "CUDA_SUCCESS", "no error"},
    {kInvalidValue, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {kDeinitialized, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {kStubLibrary, "CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library"},
    {kNoDevice, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {kInvalidDevice, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {kInvalidImage, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {kPeerAccessUnsupported, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
     "peer access is not supported between these two devices"},
    {kUnsupportedPtxVersion, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
     "the provided PTX was compiled with an unsupported toolchain."},
    {kInvalidHandle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {kNotFound, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {kNotReady, "CUDA_ERROR_NOT_READY", "device not ready"},
    {kLaunchFailed, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {kDriverMismatch, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
     "system has unsupported display driver / cuda driver combination"},
};

const Named* named(Result result) {
  for (const Named& one : kNamed)
    if (one.result == result) return &one;
  return nullptr;
}

}  // namespace

FAKE_EXPORT Result cuInit(unsigned) {
  FAKE_CALL(cuInit);
  if (state().process.load() == 0) {
    const auto bytes = static_cast<size_t>(fake::number("FAKE_CUDA_MEMORY_MB", 256)) << 20;
    for (const int gpu : visible_gpus()) {
      const int index = static_cast<int>(state().contexts.size());
      state().contexts.push_back(std::make_unique<ContextObject>(index, gpu, bytes));
    }
    state().process.store(::getpid());
  }
  return state().contexts.empty() ? kNoDevice : kSuccess;
}

FAKE_EXPORT Result cuDriverGetVersion(int* version) {
  FAKE_FACT(cuDriverGetVersion);
  *version = static_cast<int>(fake::number("FAKE_CUDA_DRIVER_VERSION", 12090));
  return kSuccess;
}

FAKE_EXPORT Result cuGetErrorName(Result result, const char** name) {
  FAKE_FACT(cuGetErrorName);
  *name = named(result) ? named(result)->name : nullptr;
  return *name ? kSuccess : kInvalidValue;
}

FAKE_EXPORT Result cuGetErrorString(Result result, const char** text) {
  FAKE_FACT(cuGetErrorString);
  *text = named(result) ? named(result)->text : nullptr;
  return *text ? kSuccess : kInvalidValue;
}

FAKE_EXPORT Result cuDeviceGetCount(int* count) {
  FAKE_CALL(cuDeviceGetCount);
  *count = static_cast<int>(state().contexts.size());
  return kSuccess;
}

FAKE_EXPORT Result cuDeviceGet(Ordinal* device, int index) {
  FAKE_CALL(cuDeviceGet);
  if (context_of(index) == nullptr) return kInvalidDevice;
  *device = index;
  return kSuccess;
}

FAKE_EXPORT Result cuDeviceGetName(char* name, int capacity, Ordinal device) {
  FAKE_CALL(cuDeviceGetName);
  if (context_of(device) == nullptr) return kInvalidDevice;
  std::snprintf(name, static_cast<size_t>(capacity), "Stand-in GPU");
  return kSuccess;
}

FAKE_EXPORT Result cuDeviceGetUuid_v2(Uuid* uuid, Ordinal device) {
  FAKE_CALL(cuDeviceGetUuid_v2);
  if (context_of(device) == nullptr) return kInvalidDevice;
  *uuid = {};
  uuid->bytes[0] = 0xfa;
  uuid->bytes[15] = static_cast<unsigned char>(context_of(device)->gpu);
  return kSuccess;
}

FAKE_EXPORT Result cuDeviceGetPCIBusId(char* text, int capacity, Ordinal device) {
  FAKE_CALL(cuDeviceGetPCIBusId);
  if (context_of(device) == nullptr) return kInvalidDevice;
  const int gpu = is_mig() ? 0 : context_of(device)->gpu;
  std::snprintf(text, static_cast<size_t>(capacity), "0000:%02x:00.0", gpu + 1);
  return kSuccess;
}

/// Called by tools, not by the runtime.
FAKE_EXPORT Result cuDeviceTotalMem_v2(size_t* bytes, Ordinal device) {
  FAKE_CALL(cuDeviceTotalMem_v2);
  if (context_of(device) == nullptr) return kInvalidDevice;
  *bytes = context_of(device)->arena.total_bytes();
  return kSuccess;
}

FAKE_EXPORT Result cuDeviceGetAttribute(int* value, DeviceAttribute attribute, Ordinal device) {
  FAKE_CALL(cuDeviceGetAttribute);
  if (context_of(device) == nullptr) return kInvalidDevice;
  switch (attribute) {
    case DeviceAttribute::multiprocessors:
      *value = 132;
      return kSuccess;
    case DeviceAttribute::compute_capability_major:
      *value = 9;
      return kSuccess;
    case DeviceAttribute::compute_capability_minor:
      *value = 0;
      return kSuccess;
  }
  return kInvalidValue;
}

FAKE_EXPORT Result cuDeviceCanAccessPeer(int* can, Ordinal device, Ordinal peer) {
  FAKE_CALL(cuDeviceCanAccessPeer);
  if (context_of(device) == nullptr || context_of(peer) == nullptr) return kInvalidDevice;
  *can = device != peer && !is_mig() ? 1 : 0;
  return kSuccess;
}

FAKE_EXPORT Result cuDevicePrimaryCtxRetain(ContextHandle* context, Ordinal device) {
  FAKE_CALL(cuDevicePrimaryCtxRetain);
  if (context_of(device) == nullptr) return kInvalidDevice;
  *context = context_of(device);
  ++(*context)->retained;
  return kSuccess;
}

FAKE_EXPORT Result cuDevicePrimaryCtxRelease_v2(Ordinal device) {
  FAKE_CALL(cuDevicePrimaryCtxRelease_v2);
  if (context_of(device) == nullptr) return kInvalidDevice;
  if (context_of(device)->retained == 0) fake::misuse("the context is not retained");
  --context_of(device)->retained;
  return kSuccess;
}

FAKE_EXPORT Result cuCtxPushCurrent_v2(ContextHandle context) {
  FAKE_CALL(cuCtxPushCurrent_v2);
  if (context->retained == 0) fake::misuse("the context was released");
  fake::thread().contexts.push_back(context);
  return kSuccess;
}

FAKE_EXPORT Result cuCtxPopCurrent_v2(ContextHandle* context) {
  FAKE_CALL(cuCtxPopCurrent_v2);
  *context = fake::current_context();
  fake::thread().contexts.pop_back();
  return kSuccess;
}

FAKE_EXPORT Result cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  FAKE_CALL(cuCtxGetStreamPriorityRange);
  fake::current_context();
  *least = 0;
  *greatest = -5;
  return kSuccess;
}

FAKE_EXPORT int fake_cuda_current_gpu() {
  return fake::thread().contexts.empty() ? -1 : fake::thread().contexts.back()->gpu;
}

FAKE_EXPORT int fake_cuda_retained_contexts() {
  const std::lock_guard lock(state().mutex);
  return static_cast<int>(std::count_if(state().contexts.begin(), state().contexts.end(),
                                        [](const auto& one) { return one->retained > 0; }));
}
