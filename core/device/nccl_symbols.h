// The symbols of NcclTable in libnccl.so.2 and librccl.so.1. Included by nccl.cc and by tests.
#pragma once

#include "core/device/nccl_api.h"
#include "core/device/symbols.h"

namespace hvd::device {

/// The oldest NCCL that is supported, as ncclGetVersion tells it: 10000 * major + 100 * minor +
/// patch.
inline constexpr int kOldestNccl = 21600;

/// A function that both libraries export under the same name.
template <class Function>
constexpr Symbol<NcclTable, Function> in_both(Function* NcclTable::*field, const char* name,
                                              Need need, int since) {
  return {field, {name}, name, need, since};
}
template <class Function>
constexpr auto needed(Function* NcclTable::*field, const char* name) {
  return in_both(field, name, Need::needed, 0);
}
template <class Function>
constexpr auto optional(Function* NcclTable::*field, const char* name, int since) {
  return in_both(field, name, Need::optional, since);
}

/// Looked up first: it decides which of the others there are.
inline constexpr std::tuple kNcclVersionSymbols{
    needed(&NcclTable::get_version, "ncclGetVersion"),
};

inline constexpr std::tuple kNcclSymbols{
    needed(&NcclTable::get_error_string, "ncclGetErrorString"),
    needed(&NcclTable::get_last_error, "ncclGetLastError"),
    needed(&NcclTable::get_unique_id, "ncclGetUniqueId"),
    needed(&NcclTable::comm_init_rank_config, "ncclCommInitRankConfig"),
    needed(&NcclTable::comm_finalize, "ncclCommFinalize"),
    needed(&NcclTable::comm_destroy, "ncclCommDestroy"),
    needed(&NcclTable::comm_abort, "ncclCommAbort"),
    needed(&NcclTable::comm_get_async_error, "ncclCommGetAsyncError"),
    needed(&NcclTable::all_reduce, "ncclAllReduce"),
    needed(&NcclTable::all_gather, "ncclAllGather"),
    needed(&NcclTable::reduce_scatter, "ncclReduceScatter"),
    needed(&NcclTable::broadcast, "ncclBroadcast"),
    needed(&NcclTable::reduce, "ncclReduce"),
    needed(&NcclTable::send, "ncclSend"),
    needed(&NcclTable::receive, "ncclRecv"),
    needed(&NcclTable::group_start, "ncclGroupStart"),
    needed(&NcclTable::group_end, "ncclGroupEnd"),
    needed(&NcclTable::red_op_create_pre_mul_sum, "ncclRedOpCreatePreMulSum"),
    needed(&NcclTable::red_op_destroy, "ncclRedOpDestroy"),
    optional(&NcclTable::memory_allocate, "ncclMemAlloc", 21900),
    optional(&NcclTable::memory_free, "ncclMemFree", 21900),
    optional(&NcclTable::comm_register, "ncclCommRegister", 21900),
    optional(&NcclTable::comm_deregister, "ncclCommDeregister", 21900),
    optional(&NcclTable::comm_revoke, "ncclCommRevoke", 22809),
};

}  // namespace hvd::device
