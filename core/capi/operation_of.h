// Converts the C description of an operation to that of the core, and asserts that the values of
// the enumerations are equal.
#pragma once

#include "core/base/operation.h"
#include "horovod/horovod.h"

namespace hvd {

static_assert(int(HVD_JOIN) == int(OperationKind::join) &&
              int(HVD_MESSAGE) == int(OperationKind::message) &&
              int(HVD_ALLREDUCE) == int(OperationKind::allreduce) &&
              int(HVD_ALLGATHER) == int(OperationKind::allgather) &&
              int(HVD_BROADCAST) == int(OperationKind::broadcast) &&
              int(HVD_ALLTOALL) == int(OperationKind::alltoall) &&
              int(HVD_REDUCESCATTER) == int(OperationKind::reducescatter) &&
              int(HVD_BARRIER) == int(OperationKind::barrier));
static_assert(int(HVD_BFLOAT16) == int(kLastDType) && int(HVD_UINT8) == int(DType::uint8));
static_assert(int(HVD_PRODUCT) == int(kLastReduceOp) && int(HVD_AVERAGE) == int(ReduceOp::average));

static_assert(int(HVD_HOST) == int(DeviceKind::host) && int(HVD_CUDA) == int(DeviceKind::cuda) &&
              int(HVD_ROCM) == int(kLastDeviceKind));

/// Converts a request whose kind, element types, devices and reduction were checked. Leaves out
/// fields that its kind does not use, so that ranks need not agree on them.
inline Operation operation_of(const hvd_request& request) {
  const hvd_operation& asked = request.operation;
  Operation made{.kind = static_cast<OperationKind>(asked.kind)};
  if (request.count > 0) {
    made.dtype =
        static_cast<DType>(request.sent_as == nullptr ? request.inputs[0].dtype : *request.sent_as);
    made.device = static_cast<DeviceKind>(request.inputs[0].device.type);
  }
  if (reduces(made.kind)) {
    made.op = static_cast<ReduceOp>(asked.op);
    made.prescale = asked.prescale;
    made.postscale = asked.postscale;
  }
  if (made.kind == OperationKind::broadcast || made.kind == OperationKind::message)
    made.root = asked.root;
  return made;
}

}  // namespace hvd
