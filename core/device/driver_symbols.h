// The symbols of DriverTable in libcuda.so.1 and in ROCm's libamdhip64.so. Included by driver.cc
// and by tests.
#pragma once

#include "core/device/driver_api.h"
#include "core/device/symbols.h"

namespace hvd::device {

/// Versions as cuDriverGetVersion tells them: 1000 * major + 10 * minor of CUDA.
inline constexpr std::tuple kDriverSymbols{
    Symbol{&DriverTable::init, {"cuInit"}, "hipInit"},
    Symbol{&DriverTable::driver_get_version, {"cuDriverGetVersion"}, "hipDriverGetVersion"},
    Symbol{&DriverTable::get_error_name, {"cuGetErrorName"}, "hipDrvGetErrorName"},
    Symbol{&DriverTable::get_error_string, {"cuGetErrorString"}, "hipDrvGetErrorString"},

    Symbol{&DriverTable::device_get_count, {"cuDeviceGetCount"}, "hipGetDeviceCount"},
    Symbol{&DriverTable::device_get, {"cuDeviceGet"}, "hipDeviceGet"},
    Symbol{&DriverTable::device_get_name, {"cuDeviceGetName"}, "hipDeviceGetName"},
    Symbol{&DriverTable::device_get_uuid,
           {"cuDeviceGetUuid_v2", "cuDeviceGetUuid"},
           "hipDeviceGetUuid"},
    Symbol{&DriverTable::device_get_pci_bus_id, {"cuDeviceGetPCIBusId"}, "hipDeviceGetPCIBusId"},
    Symbol{&DriverTable::device_get_attribute, {"cuDeviceGetAttribute"}, "hipDeviceGetAttribute"},
    Symbol{
        &DriverTable::device_can_access_peer, {"cuDeviceCanAccessPeer"}, "hipDeviceCanAccessPeer"},

    Symbol{&DriverTable::primary_context_retain,
           {"cuDevicePrimaryCtxRetain"},
           "hipDevicePrimaryCtxRetain"},
    Symbol{&DriverTable::primary_context_release,
           {"cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxRelease"},
           "hipDevicePrimaryCtxRelease"},
    Symbol{&DriverTable::context_push, {"cuCtxPushCurrent_v2"}, "hipCtxPushCurrent"},
    Symbol{&DriverTable::context_pop, {"cuCtxPopCurrent_v2"}, "hipCtxPopCurrent"},
    Symbol{&DriverTable::stream_priority_range,
           {"cuCtxGetStreamPriorityRange"},
           "hipDeviceGetStreamPriorityRange"},

    Symbol{
        &DriverTable::stream_create, {"cuStreamCreateWithPriority"}, "hipStreamCreateWithPriority"},
    Symbol{&DriverTable::stream_destroy, {"cuStreamDestroy_v2"}, "hipStreamDestroy"},
    Symbol{&DriverTable::stream_wait_event, {"cuStreamWaitEvent"}, "hipStreamWaitEvent"},
    Symbol{&DriverTable::stream_query, {"cuStreamQuery"}, "hipStreamQuery"},
    Symbol{&DriverTable::stream_is_capturing, {"cuStreamIsCapturing"}, "hipStreamIsCapturing"},
    Symbol{&DriverTable::exchange_capture_mode,
           {"cuThreadExchangeStreamCaptureMode"},
           "hipThreadExchangeStreamCaptureMode"},

    Symbol{&DriverTable::event_create, {"cuEventCreate"}, "hipEventCreateWithFlags"},
    Symbol{&DriverTable::event_record, {"cuEventRecord"}, "hipEventRecord"},
    Symbol{&DriverTable::event_query, {"cuEventQuery"}, "hipEventQuery"},
    Symbol{&DriverTable::event_destroy, {"cuEventDestroy_v2"}, "hipEventDestroy"},
    Symbol{&DriverTable::event_elapsed_time, {"cuEventElapsedTime"}, "hipEventElapsedTime"},

    Symbol{&DriverTable::memory_allocate, {"cuMemAlloc_v2"}, "hipMalloc"},
    Symbol{&DriverTable::memory_free, {"cuMemFree_v2"}, "hipFree"},
    Symbol{&DriverTable::memory_get_info, {"cuMemGetInfo_v2"}, "hipMemGetInfo"},
    Symbol{&DriverTable::host_allocate, {"cuMemHostAlloc"}, "hipHostMalloc"},
    Symbol{&DriverTable::host_free, {"cuMemFreeHost"}, "hipHostFree"},
    Symbol{&DriverTable::host_register, {"cuMemHostRegister_v2"}, "hipHostRegister"},
    Symbol{&DriverTable::host_unregister, {"cuMemHostUnregister"}, "hipHostUnregister"},
    Symbol{&DriverTable::copy_async, {"cuMemcpyAsync"}, ""},
    Symbol{&DriverTable::copy_async_of_kind, {""}, "hipMemcpyAsync"},
    Symbol{&DriverTable::fill_async, {"cuMemsetD8Async"}, "hipMemsetD8Async"},
    Symbol{
        &DriverTable::pointer_get_attribute, {"cuPointerGetAttribute"}, "hipPointerGetAttribute"},

    Symbol{&DriverTable::ipc_get_memory_handle, {"cuIpcGetMemHandle"}, "hipIpcGetMemHandle"},
    Symbol{&DriverTable::ipc_open_memory_handle,
           {"cuIpcOpenMemHandle_v2", "cuIpcOpenMemHandle"},
           "hipIpcOpenMemHandle"},
    Symbol{&DriverTable::ipc_close_memory_handle, {"cuIpcCloseMemHandle"}, "hipIpcCloseMemHandle"},
    Symbol{&DriverTable::ipc_get_event_handle, {"cuIpcGetEventHandle"}, "hipIpcGetEventHandle"},
    Symbol{&DriverTable::ipc_open_event_handle, {"cuIpcOpenEventHandle"}, "hipIpcOpenEventHandle"},

    Symbol{&DriverTable::module_load_data, {"cuModuleLoadData"}, "hipModuleLoadData"},
    Symbol{&DriverTable::module_get_function, {"cuModuleGetFunction"}, "hipModuleGetFunction"},
    Symbol{&DriverTable::launch_kernel, {"cuLaunchKernel"}, "hipModuleLaunchKernel"},
};

}  // namespace hvd::device
