// NCCL 2.16 and later, as far as the runtime uses it, in declarations of our own. RCCL, the library
// of ROCm, has the same functions; its use is untested.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>

#include "core/device/driver_api.h"

namespace hvd::device {

using CommHandle = struct CommObject*;
using NcclReduceOp = int;  ///< one of the constants, or made by red_op_create_pre_mul_sum

enum class NcclResult : int {
  success = 0,
  unhandled_cuda_error = 1,
  system_error = 2,
  internal_error = 3,
  invalid_argument = 4,
  invalid_usage = 5,
  remote_error = 6,
  in_progress = 7,
};

enum class NcclType : int {
  int8 = 0,
  uint8 = 1,
  int32 = 2,
  uint32 = 3,
  int64 = 4,
  uint64 = 5,
  float16 = 6,
  float32 = 7,
  float64 = 8,
  bfloat16 = 9,
};

inline constexpr NcclReduceOp kNcclSum = 0;
inline constexpr NcclReduceOp kNcclProduct = 1;
inline constexpr NcclReduceOp kNcclMax = 2;
inline constexpr NcclReduceOp kNcclMin = 3;
inline constexpr NcclReduceOp kNcclAvg = 4;

enum class ScalarResidence : int { device = 0, host_immediate = 1 };

struct UniqueId {
  char bytes[128];
};

/// ncclConfig_t as of 2.18. Later versions only append fields; the library reads as many as `size`
/// says and uses defaults for the others. So does 2.16 with its shorter struct.
struct CommConfig {
  static constexpr int kUnset = INT_MIN;

  size_t size = sizeof(CommConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = kUnset;
  int cga_cluster_size = kUnset;
  int min_ctas = kUnset;
  int max_ctas = kUnset;
  const char* net_name = nullptr;
  int split_share = kUnset;
};

/// The functions of one library. A communicator is used by one thread at a time. Optional functions
/// may be nullptr.
struct NcclTable {
  NcclResult (*get_version)(int* version);
  const char* (*get_error_string)(NcclResult result);
  const char* (*get_last_error)(CommHandle comm);
  NcclResult (*get_unique_id)(UniqueId* id);

  NcclResult (*comm_init_rank_config)(CommHandle* comm, int size, UniqueId id, int rank,
                                      CommConfig* config);
  NcclResult (*comm_finalize)(CommHandle comm);
  NcclResult (*comm_destroy)(CommHandle comm);
  NcclResult (*comm_abort)(CommHandle comm);
  NcclResult (*comm_get_async_error)(CommHandle comm, NcclResult* state);

  NcclResult (*all_reduce)(const void* send, void* receive, size_t count, NcclType type,
                           NcclReduceOp op, CommHandle comm, StreamHandle stream);
  NcclResult (*all_gather)(const void* send, void* receive, size_t send_count, NcclType type,
                           CommHandle comm, StreamHandle stream);
  NcclResult (*reduce_scatter)(const void* send, void* receive, size_t receive_count, NcclType type,
                               NcclReduceOp op, CommHandle comm, StreamHandle stream);
  NcclResult (*broadcast)(const void* send, void* receive, size_t count, NcclType type, int root,
                          CommHandle comm, StreamHandle stream);
  NcclResult (*reduce)(const void* send, void* receive, size_t count, NcclType type,
                       NcclReduceOp op, int root, CommHandle comm, StreamHandle stream);
  NcclResult (*send)(const void* send, size_t count, NcclType type, int peer, CommHandle comm,
                     StreamHandle stream);
  NcclResult (*receive)(void* receive, size_t count, NcclType type, int peer, CommHandle comm,
                        StreamHandle stream);
  NcclResult (*group_start)();
  NcclResult (*group_end)();
  NcclResult (*red_op_create_pre_mul_sum)(NcclReduceOp* op, void* scalar, NcclType type,
                                          ScalarResidence residence, CommHandle comm);
  NcclResult (*red_op_destroy)(NcclReduceOp op, CommHandle comm);

  NcclResult (*comm_revoke)(CommHandle comm, int flags);
  NcclResult (*memory_allocate)(void** address, size_t bytes);
  NcclResult (*memory_free)(void* address);
  NcclResult (*comm_register)(CommHandle comm, void* buffer, size_t bytes, void** handle);
  NcclResult (*comm_deregister)(CommHandle comm, void* handle);
};

}  // namespace hvd::device
