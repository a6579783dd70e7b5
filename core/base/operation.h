// The description of an operation, shared by requests, negotiation, batches and blocking calls.
// Value types. The enumerators' numbers are part of the C interface and of the wire format.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/base/dtype.h"

namespace hvd {

enum class OperationKind : uint8_t {
  allreduce = 0,
  allgather = 1,
  broadcast = 2,
  alltoall = 3,
  reducescatter = 4,
  barrier = 5,
  join = 6,
  message = 7,             ///< from one rank to another one
  add_process_set = 8,     ///< not in the C interface, which has separate functions for sets
  remove_process_set = 9,  ///< not in the C interface
};
inline constexpr OperationKind kLastOperationKind = OperationKind::remove_process_set;

/// The memory space of tensors. Ranks must agree on the kind of device, not on its number.
enum class DeviceKind : uint8_t {
  host = 0,
  cuda = 1,
  rocm = 2,
};
inline constexpr DeviceKind kLastDeviceKind = DeviceKind::rocm;

/// All fields are equal on all ranks. Fields that do not apply to a kind have their default.
struct Operation {
  OperationKind kind = OperationKind::allreduce;
  DType dtype = DType::uint8;
  ReduceOp op = ReduceOp::sum;
  DeviceKind device = DeviceKind::host;
  int32_t root = 0;        ///< broadcast: the root, message: the sender; a global rank or a rank of
                           ///< the group (documented by the owner)
  double prescale = 1.0;   ///< for reductions: factor before ...
  double postscale = 1.0;  ///< ... and after
  bool operator==(const Operation&) const = default;
};

std::string_view name_of(OperationKind kind);  // "allreduce", as in error messages
std::string_view name_of(DeviceKind device);   // "CUDA memory"

/// Returns true for kinds that combine the elements of all ranks.
constexpr bool reduces(OperationKind kind) {
  return kind == OperationKind::allreduce || kind == OperationKind::reducescatter;
}
/// Returns true for kinds whose first dimension may differ between ranks.
constexpr bool has_free_rows(OperationKind kind) {
  return kind == OperationKind::allgather || kind == OperationKind::alltoall;
}
/// Returns true for kinds that move bytes of tensors and therefore run as a Batch.
constexpr bool moves_tensors(OperationKind kind) {
  return kind < OperationKind::barrier || kind == OperationKind::message;
}
/// Returns true for kinds that can be fused with operations of equal description.
constexpr bool is_fusable(OperationKind kind) {
  return kind == OperationKind::allgather || reduces(kind);
}
/// Returns true for kinds that are matched among the names of the world only.
constexpr bool concerns_world(OperationKind kind) { return kind >= OperationKind::join; }
/// Returns true for kinds that only change process sets, at their position in the order of batches.
constexpr bool is_control(OperationKind kind) {
  return kind == OperationKind::add_process_set || kind == OperationKind::remove_process_set;
}

}  // namespace hvd
