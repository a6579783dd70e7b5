// Compares our declarations of the CUDA driver and of NCCL with the real headers. Compiled, not
// run, by tests/house/test_gpu_sources.py, where a package with the headers is installed.
#include <cuda.h>
#include <nccl.h>

#include <cstddef>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "core/device/driver_symbols.h"
#include "core/device/nccl_symbols.h"

namespace {

using namespace hvd::device;

template <class T>
concept Complete = requires {
  sizeof(T);
};

/// Whether two types are passed in the same way and point to values of the same size.
template <class Ours, class Theirs>
constexpr bool same_value() {
  if constexpr (std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>) {
    using Left = std::remove_cv_t<std::remove_pointer_t<Ours>>;
    using Right = std::remove_cv_t<std::remove_pointer_t<Theirs>>;
    // Objects of the library, and memory of any type.
    if constexpr (std::is_void_v<Left> || std::is_void_v<Right>)
      return std::is_void_v<Left> && std::is_void_v<Right>;
    else if constexpr (!Complete<Left> || !Complete<Right>)
      return !Complete<Left> && !Complete<Right>;
    else if constexpr (std::is_same_v<Right, ncclConfig_t>)
      return sizeof(Left) <= sizeof(Right);  // the library reads `size`
    else
      return same_value<Left, Right>();
  } else if constexpr (std::is_class_v<Ours>) {
    return std::is_class_v<Theirs> && sizeof(Ours) == sizeof(Theirs) &&
           std::is_trivially_copyable_v<Ours>;
  } else if constexpr (std::is_floating_point_v<Ours>) {
    return std::is_same_v<Ours, Theirs>;
  } else {
    constexpr bool integers = (std::is_integral_v<Ours> || std::is_enum_v<Ours>)&&(
        std::is_integral_v<Theirs> || std::is_enum_v<Theirs>);
    return integers && sizeof(Ours) == sizeof(Theirs);
  }
}

template <class Ours, class Theirs>
constexpr bool kSameFunction = false;
template <class Result, class... Ours, class TheirResult, class... Theirs>
requires(sizeof...(Ours) == sizeof...(Theirs)) constexpr bool kSameFunction<
    Result (*)(Ours...), TheirResult (*)(Theirs...)> = same_value<Result, TheirResult>() &&
                                                       (same_value<Ours, Theirs>() && ...);

/// Whether the row of `field` has this exported name.
template <class Symbols, class Table, class Function>
constexpr bool names_field(const Symbols& symbols, Function* Table::*field, std::string_view name) {
  const auto matches = [&](const auto& symbol) {
    if constexpr (std::is_same_v<decltype(symbol.field), Function * Table::*>) {
      if (symbol.field != field) return false;
      for (const char* one : symbol.cuda)
        if (one != nullptr && name == one) return true;
    }
    return false;
  };
  return std::apply([&](const auto&... symbol) { return (matches(symbol) || ...); }, symbols);
}

constexpr auto kAllNccl = std::tuple_cat(kNcclVersionSymbols, kNcclSymbols);

// A header defines cuMemAlloc as cuMemAlloc_v2, which is the exported name.
#define TEXT_OF(name) #name
#define EXPORTED(name) TEXT_OF(name)
#define CHECK_DRIVER(field, function)                                                             \
  static_assert(kSameFunction<decltype(DriverTable::field), decltype(&function)>, #function);     \
  static_assert(names_field(kDriverSymbols, &DriverTable::field, EXPORTED(function)), #function); \
  static_assert(__COUNTER__ >= 0)
#define CHECK_NCCL(field, function)                                                         \
  static_assert(kSameFunction<decltype(NcclTable::field), decltype(&function)>, #function); \
  static_assert(names_field(kAllNccl, &NcclTable::field, EXPORTED(function)), #function);   \
  static_assert(__COUNTER__ >= 0)

constexpr int kBeforeDriver = __COUNTER__;
CHECK_DRIVER(init, cuInit);
CHECK_DRIVER(driver_get_version, cuDriverGetVersion);
CHECK_DRIVER(get_error_name, cuGetErrorName);
CHECK_DRIVER(get_error_string, cuGetErrorString);
CHECK_DRIVER(device_get_count, cuDeviceGetCount);
CHECK_DRIVER(device_get, cuDeviceGet);
CHECK_DRIVER(device_get_name, cuDeviceGetName);
CHECK_DRIVER(device_get_uuid, cuDeviceGetUuid_v2);
CHECK_DRIVER(device_get_pci_bus_id, cuDeviceGetPCIBusId);
CHECK_DRIVER(device_get_attribute, cuDeviceGetAttribute);
CHECK_DRIVER(device_can_access_peer, cuDeviceCanAccessPeer);
CHECK_DRIVER(primary_context_retain, cuDevicePrimaryCtxRetain);
CHECK_DRIVER(primary_context_release, cuDevicePrimaryCtxRelease);
CHECK_DRIVER(context_push, cuCtxPushCurrent);
CHECK_DRIVER(context_pop, cuCtxPopCurrent);
CHECK_DRIVER(stream_priority_range, cuCtxGetStreamPriorityRange);
CHECK_DRIVER(stream_create, cuStreamCreateWithPriority);
CHECK_DRIVER(stream_destroy, cuStreamDestroy);
CHECK_DRIVER(stream_wait_event, cuStreamWaitEvent);
CHECK_DRIVER(stream_query, cuStreamQuery);
CHECK_DRIVER(stream_is_capturing, cuStreamIsCapturing);
CHECK_DRIVER(exchange_capture_mode, cuThreadExchangeStreamCaptureMode);
CHECK_DRIVER(event_create, cuEventCreate);
CHECK_DRIVER(event_record, cuEventRecord);
CHECK_DRIVER(event_query, cuEventQuery);
CHECK_DRIVER(event_destroy, cuEventDestroy);
CHECK_DRIVER(event_elapsed_time, cuEventElapsedTime);
CHECK_DRIVER(memory_allocate, cuMemAlloc);
CHECK_DRIVER(memory_free, cuMemFree);
CHECK_DRIVER(memory_get_info, cuMemGetInfo);
CHECK_DRIVER(host_allocate, cuMemHostAlloc);
CHECK_DRIVER(host_free, cuMemFreeHost);
CHECK_DRIVER(host_register, cuMemHostRegister);
CHECK_DRIVER(host_unregister, cuMemHostUnregister);
CHECK_DRIVER(copy_async, cuMemcpyAsync);
CHECK_DRIVER(fill_async, cuMemsetD8Async);
CHECK_DRIVER(pointer_get_attribute, cuPointerGetAttribute);
CHECK_DRIVER(ipc_get_memory_handle, cuIpcGetMemHandle);
CHECK_DRIVER(ipc_open_memory_handle, cuIpcOpenMemHandle);
CHECK_DRIVER(ipc_close_memory_handle, cuIpcCloseMemHandle);
CHECK_DRIVER(ipc_get_event_handle, cuIpcGetEventHandle);
CHECK_DRIVER(ipc_open_event_handle, cuIpcOpenEventHandle);
CHECK_DRIVER(module_load_data, cuModuleLoadData);
CHECK_DRIVER(module_get_function, cuModuleGetFunction);
CHECK_DRIVER(launch_kernel, cuLaunchKernel);
// All rows but the one of HIP.
static_assert(__COUNTER__ - kBeforeDriver - 1 == std::tuple_size_v<decltype(kDriverSymbols)> - 1);

constexpr int kBeforeNccl = __COUNTER__;
CHECK_NCCL(get_version, ncclGetVersion);
CHECK_NCCL(get_error_string, ncclGetErrorString);
CHECK_NCCL(get_last_error, ncclGetLastError);
CHECK_NCCL(get_unique_id, ncclGetUniqueId);
CHECK_NCCL(comm_init_rank_config, ncclCommInitRankConfig);
CHECK_NCCL(comm_finalize, ncclCommFinalize);
CHECK_NCCL(comm_destroy, ncclCommDestroy);
CHECK_NCCL(comm_abort, ncclCommAbort);
CHECK_NCCL(comm_get_async_error, ncclCommGetAsyncError);
CHECK_NCCL(all_reduce, ncclAllReduce);
CHECK_NCCL(all_gather, ncclAllGather);
CHECK_NCCL(reduce_scatter, ncclReduceScatter);
CHECK_NCCL(broadcast, ncclBroadcast);
CHECK_NCCL(reduce, ncclReduce);
CHECK_NCCL(send, ncclSend);
CHECK_NCCL(receive, ncclRecv);
CHECK_NCCL(group_start, ncclGroupStart);
CHECK_NCCL(group_end, ncclGroupEnd);
CHECK_NCCL(red_op_create_pre_mul_sum, ncclRedOpCreatePreMulSum);
CHECK_NCCL(red_op_destroy, ncclRedOpDestroy);
CHECK_NCCL(memory_allocate, ncclMemAlloc);
CHECK_NCCL(memory_free, ncclMemFree);
CHECK_NCCL(comm_register, ncclCommRegister);
CHECK_NCCL(comm_deregister, ncclCommDeregister);
#if NCCL_VERSION_CODE >= 22809
CHECK_NCCL(comm_revoke, ncclCommRevoke);
constexpr int kLaterNccl = 0;
#else
constexpr int kLaterNccl = 1;
#endif
static_assert(__COUNTER__ - kBeforeNccl - 1 + kLaterNccl == std::tuple_size_v<decltype(kAllNccl)>);

#define SAME(ours, theirs) \
  static_assert(static_cast<int>(ours) == static_cast<int>(theirs), #theirs)
SAME(kSuccess, CUDA_SUCCESS);
SAME(kInvalidValue, CUDA_ERROR_INVALID_VALUE);
SAME(kOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
SAME(kNotInitialized, CUDA_ERROR_NOT_INITIALIZED);
SAME(kDeinitialized, CUDA_ERROR_DEINITIALIZED);
SAME(kStubLibrary, CUDA_ERROR_STUB_LIBRARY);
SAME(kNoDevice, CUDA_ERROR_NO_DEVICE);
SAME(kInvalidDevice, CUDA_ERROR_INVALID_DEVICE);
SAME(kInvalidImage, CUDA_ERROR_INVALID_IMAGE);
SAME(kInvalidContext, CUDA_ERROR_INVALID_CONTEXT);
SAME(kPeerAccessUnsupported, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
SAME(kUnsupportedPtxVersion, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
SAME(kInvalidHandle, CUDA_ERROR_INVALID_HANDLE);
SAME(kNotFound, CUDA_ERROR_NOT_FOUND);
SAME(kNotReady, CUDA_ERROR_NOT_READY);
SAME(kMemoryAlreadyRegistered, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
SAME(kLaunchFailed, CUDA_ERROR_LAUNCH_FAILED);
SAME(kNotSupported, CUDA_ERROR_NOT_SUPPORTED);
SAME(kDriverMismatch, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
SAME(kDriverTooOldForDevice, CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE);
SAME(kUnknown, CUDA_ERROR_UNKNOWN);
SAME(kNonBlockingStream, CU_STREAM_NON_BLOCKING);
SAME(kEventDisablesTiming, CU_EVENT_DISABLE_TIMING);
SAME(kEventForOtherProcesses, CU_EVENT_INTERPROCESS);
SAME(kPinnedForAllContexts, CU_MEMHOSTALLOC_PORTABLE);
SAME(kPinnedForAllContexts, CU_MEMHOSTREGISTER_PORTABLE);
SAME(kPeerAccessWhenNeeded, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
SAME(CaptureStatus::none, CU_STREAM_CAPTURE_STATUS_NONE);
SAME(CaptureStatus::active, CU_STREAM_CAPTURE_STATUS_ACTIVE);
SAME(CaptureStatus::invalidated, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
SAME(CaptureMode::global, CU_STREAM_CAPTURE_MODE_GLOBAL);
SAME(CaptureMode::thread_local_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
SAME(CaptureMode::relaxed, CU_STREAM_CAPTURE_MODE_RELAXED);
SAME(DeviceAttribute::multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME(DeviceAttribute::compute_capability_major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(DeviceAttribute::compute_capability_minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(PointerAttribute::memory_type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
SAME(PointerAttribute::device_ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
SAME(MemoryType::host, CU_MEMORYTYPE_HOST);
SAME(MemoryType::device, CU_MEMORYTYPE_DEVICE);
SAME(MemoryType::array, CU_MEMORYTYPE_ARRAY);
SAME(MemoryType::unified, CU_MEMORYTYPE_UNIFIED);

SAME(NcclResult::success, ncclSuccess);
SAME(NcclResult::unhandled_cuda_error, ncclUnhandledCudaError);
SAME(NcclResult::system_error, ncclSystemError);
SAME(NcclResult::internal_error, ncclInternalError);
SAME(NcclResult::invalid_argument, ncclInvalidArgument);
SAME(NcclResult::invalid_usage, ncclInvalidUsage);
SAME(NcclResult::remote_error, ncclRemoteError);
SAME(NcclResult::in_progress, ncclInProgress);
SAME(NcclType::int8, ncclInt8);
SAME(NcclType::uint8, ncclUint8);
SAME(NcclType::int32, ncclInt32);
SAME(NcclType::uint32, ncclUint32);
SAME(NcclType::int64, ncclInt64);
SAME(NcclType::uint64, ncclUint64);
SAME(NcclType::float16, ncclFloat16);
SAME(NcclType::float32, ncclFloat32);
SAME(NcclType::float64, ncclFloat64);
SAME(NcclType::bfloat16, ncclBfloat16);
SAME(kNcclSum, ncclSum);
SAME(kNcclProduct, ncclProd);
SAME(kNcclMax, ncclMax);
SAME(kNcclMin, ncclMin);
SAME(kNcclAvg, ncclAvg);
SAME(ScalarResidence::device, ncclScalarDevice);
SAME(ScalarResidence::host_immediate, ncclScalarHostImmediate);
SAME(sizeof(UniqueId), NCCL_UNIQUE_ID_BYTES);

#define SAME_PLACE(ours, theirs) \
  static_assert(offsetof(CommConfig, ours) == offsetof(ncclConfig_t, theirs), #theirs)
SAME_PLACE(size, size);
SAME_PLACE(magic, magic);
SAME_PLACE(version, version);
SAME_PLACE(blocking, blocking);
SAME_PLACE(cga_cluster_size, cgaClusterSize);
SAME_PLACE(min_ctas, minCTAs);
SAME_PLACE(max_ctas, maxCTAs);
SAME_PLACE(net_name, netName);
SAME_PLACE(split_share, splitShare);
SAME(CommConfig::kUnset, NCCL_CONFIG_UNDEF_INT);

}  // namespace
