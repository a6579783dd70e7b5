// Included before the sources of the stand-in driver, so that they export the names of HIP: the
// same functions are a stand-in for libamdhip64.so. hipMemcpyAsync has another form, see hip.cc.
#pragma once

#define cuInit hipInit
#define cuDriverGetVersion hipDriverGetVersion
#define cuGetErrorName hipDrvGetErrorName
#define cuGetErrorString hipDrvGetErrorString
#define cuDeviceGetCount hipGetDeviceCount
#define cuDeviceGet hipDeviceGet
#define cuDeviceGetName hipDeviceGetName
#define cuDeviceGetUuid_v2 hipDeviceGetUuid
#define cuDeviceGetPCIBusId hipDeviceGetPCIBusId
#define cuDeviceGetAttribute hipDeviceGetAttribute
#define cuDeviceCanAccessPeer hipDeviceCanAccessPeer
#define cuDevicePrimaryCtxRetain hipDevicePrimaryCtxRetain
#define cuDevicePrimaryCtxRelease_v2 hipDevicePrimaryCtxRelease
#define cuCtxPushCurrent_v2 hipCtxPushCurrent
#define cuCtxPopCurrent_v2 hipCtxPopCurrent
#define cuCtxGetStreamPriorityRange hipDeviceGetStreamPriorityRange
#define cuStreamCreateWithPriority hipStreamCreateWithPriority
#define cuStreamDestroy_v2 hipStreamDestroy
#define cuStreamWaitEvent hipStreamWaitEvent
#define cuStreamQuery hipStreamQuery
#define cuStreamIsCapturing hipStreamIsCapturing
#define cuThreadExchangeStreamCaptureMode hipThreadExchangeStreamCaptureMode
#define cuEventCreate hipEventCreateWithFlags
#define cuEventRecord hipEventRecord
#define cuEventQuery hipEventQuery
#define cuEventDestroy_v2 hipEventDestroy
#define cuEventElapsedTime hipEventElapsedTime
#define cuMemAlloc_v2 hipMalloc
#define cuMemFree_v2 hipFree
#define cuMemGetInfo_v2 hipMemGetInfo
#define cuMemHostAlloc hipHostMalloc
#define cuMemFreeHost hipHostFree
#define cuMemHostRegister_v2 hipHostRegister
#define cuMemHostUnregister hipHostUnregister
#define cuMemsetD8Async hipMemsetD8Async
#define cuPointerGetAttribute hipPointerGetAttribute
#define cuIpcGetMemHandle hipIpcGetMemHandle
#define cuIpcOpenMemHandle_v2 hipIpcOpenMemHandle
#define cuIpcCloseMemHandle hipIpcCloseMemHandle
#define cuIpcGetEventHandle hipIpcGetEventHandle
#define cuIpcOpenEventHandle hipIpcOpenEventHandle
#define cuModuleLoadData hipModuleLoadData
#define cuModuleGetFunction hipModuleGetFunction
#define cuLaunchKernel hipModuleLaunchKernel
