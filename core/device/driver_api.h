// The driver API of CUDA, as far as the runtime uses it, in declarations of our own: no header of a
// vendor is needed to build. HIP, the driver API of ROCm, has the same functions with the same
// values unless a comment says otherwise; the use of HIP is untested.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hvd::device {

// ---- types of the interface (CUresult, CUdevice, ... and hipError_t, hipDevice_t, ...)

using Result = int;
using Ordinal = int;             ///< number of a device in this process
using DevicePointer = uint64_t;  ///< an address in device memory, or in any pinned memory
using ContextHandle = struct ContextObject*;
using StreamHandle = struct StreamObject*;
using EventHandle = struct EventObject*;
using ModuleHandle = struct ModuleObject*;
using FunctionHandle = struct FunctionObject*;

struct Uuid {
  unsigned char bytes[16];
  bool operator==(const Uuid&) const = default;
};
/// An exported allocation or event, for another process of this host.
struct IpcHandle {
  char bytes[64];
};

// ---- values

inline constexpr Result kSuccess = 0;
inline constexpr Result kInvalidValue = 1;
inline constexpr Result kOutOfMemory = 2;
inline constexpr Result kNotInitialized = 3;
inline constexpr Result kDeinitialized = 4;
inline constexpr Result kStubLibrary = 34;
inline constexpr Result kInsufficientDriver = 35;  ///< of HIP only
inline constexpr Result kNoDevice = 100;
inline constexpr Result kInvalidDevice = 101;
inline constexpr Result kInvalidImage = 200;
inline constexpr Result kInvalidContext = 201;
inline constexpr Result kPeerAccessUnsupported = 217;
inline constexpr Result kUnsupportedPtxVersion = 222;
inline constexpr Result kInvalidHandle = 400;
inline constexpr Result kNotFound = 500;
inline constexpr Result kNotReady = 600;
inline constexpr Result kMemoryAlreadyRegistered = 712;
inline constexpr Result kLaunchFailed = 719;
inline constexpr Result kNotSupported = 801;
inline constexpr Result kDriverMismatch = 803;
inline constexpr Result kDriverTooOldForDevice = 804;
inline constexpr Result kUnknown = 999;

/// Streams by name: legacy default stream, and the default stream of the calling thread. nullptr is
/// the legacy stream of the current context.
inline const StreamHandle kLegacyStream = reinterpret_cast<StreamHandle>(1);
inline const StreamHandle kPerThreadStream = reinterpret_cast<StreamHandle>(2);

inline constexpr unsigned kNonBlockingStream = 1;
inline constexpr unsigned kEventDisablesTiming = 2;
inline constexpr unsigned kEventForOtherProcesses = 4;
inline constexpr unsigned kPinnedForAllContexts = 1;
inline constexpr unsigned kPeerAccessWhenNeeded = 1;  ///< for IPC: the only flag that there is

enum class CaptureStatus : int { none = 0, active = 1, invalidated = 2 };
enum class CaptureMode : int { global = 0, thread_local_ = 1, relaxed = 2 };

/// Attributes of CUDA devices. HIP has other numbers, so none is asked for on ROCm.
enum class DeviceAttribute : int {
  multiprocessors = 16,
  compute_capability_major = 75,
  compute_capability_minor = 76,
};

/// Attributes of an address.
enum class PointerAttribute : int {
  memory_type = 2,     ///< of type MemoryType
  device_ordinal = 9,  ///< of type int
};
enum class MemoryType : unsigned { unknown = 0, host = 1, device = 2, array = 3, unified = 4 };

/// The functions of one driver, all called from any thread. Optional ones may be nullptr.
struct DriverTable {
  Result (*init)(unsigned flags);
  Result (*driver_get_version)(int* version);
  Result (*get_error_name)(Result result, const char** name);
  Result (*get_error_string)(Result result, const char** text);

  Result (*device_get_count)(int* count);
  Result (*device_get)(Ordinal* device, int index);
  Result (*device_get_name)(char* name, int capacity, Ordinal device);
  Result (*device_get_uuid)(Uuid* uuid, Ordinal device);
  Result (*device_get_pci_bus_id)(char* text, int capacity, Ordinal device);
  Result (*device_get_attribute)(int* value, DeviceAttribute attribute, Ordinal device);
  Result (*device_can_access_peer)(int* can, Ordinal device, Ordinal peer);

  Result (*primary_context_retain)(ContextHandle* context, Ordinal device);
  Result (*primary_context_release)(Ordinal device);
  Result (*context_push)(ContextHandle context);
  Result (*context_pop)(ContextHandle* context);
  Result (*stream_priority_range)(int* least, int* greatest);

  Result (*stream_create)(StreamHandle* stream, unsigned flags, int priority);
  Result (*stream_destroy)(StreamHandle stream);
  Result (*stream_wait_event)(StreamHandle stream, EventHandle event, unsigned flags);
  Result (*stream_query)(StreamHandle stream);
  Result (*stream_is_capturing)(StreamHandle stream, CaptureStatus* status);
  Result (*exchange_capture_mode)(CaptureMode* mode);

  Result (*event_create)(EventHandle* event, unsigned flags);
  Result (*event_record)(EventHandle event, StreamHandle stream);
  Result (*event_query)(EventHandle event);
  Result (*event_destroy)(EventHandle event);
  Result (*event_elapsed_time)(float* milliseconds, EventHandle begin, EventHandle end);

  Result (*memory_allocate)(DevicePointer* address, size_t bytes);
  Result (*memory_free)(DevicePointer address);
  Result (*memory_get_info)(size_t* free_bytes, size_t* total_bytes);
  Result (*host_allocate)(void** address, size_t bytes, unsigned flags);
  Result (*host_free)(void* address);
  Result (*host_register)(void* address, size_t bytes, unsigned flags);
  Result (*host_unregister)(void* address);
  Result (*copy_async)(DevicePointer to, DevicePointer from, size_t bytes, StreamHandle stream);
  /// HIP's form of copy_async. `kind` is 4: the addresses tell the direction.
  Result (*copy_async_of_kind)(void* to, const void* from, size_t bytes, int kind,
                               StreamHandle stream);
  Result (*fill_async)(DevicePointer to, unsigned char value, size_t bytes, StreamHandle stream);
  Result (*pointer_get_attribute)(void* value, PointerAttribute attribute, DevicePointer address);

  Result (*ipc_get_memory_handle)(IpcHandle* handle, DevicePointer address);
  Result (*ipc_open_memory_handle)(DevicePointer* address, IpcHandle handle, unsigned flags);
  Result (*ipc_close_memory_handle)(DevicePointer address);
  Result (*ipc_get_event_handle)(IpcHandle* handle, EventHandle event);
  Result (*ipc_open_event_handle)(EventHandle* event, IpcHandle handle);

  Result (*module_load_data)(ModuleHandle* module, const void* image);
  Result (*module_get_function)(FunctionHandle* function, ModuleHandle module, const char* name);
  Result (*launch_kernel)(FunctionHandle function, unsigned grid_x, unsigned grid_y,
                          unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                          unsigned shared_bytes, StreamHandle stream, void** parameters,
                          void** extra);
};

}  // namespace hvd::device
