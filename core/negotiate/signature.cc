#include "core/negotiate/signature.h"

#include "core/base/assert.h"

namespace hvd {
namespace {

/// The first dimension of an allgather or alltoall is not agreed; packing counts one row.
uint64_t agreed_elements(const Shape& shape) {
  uint64_t count = 1;
  for (const int64_t dimension : shape) {
    if (dimension != kFreeDimension) count *= static_cast<uint64_t>(dimension);
  }
  return count;
}

}  // namespace

std::string_view name_of(OperationKind kind) {
  switch (kind) {
    case OperationKind::allreduce:
      return "allreduce";
    case OperationKind::allgather:
      return "allgather";
    case OperationKind::broadcast:
      return "broadcast";
    case OperationKind::alltoall:
      return "alltoall";
    case OperationKind::reducescatter:
      return "reducescatter";
    case OperationKind::barrier:
      return "barrier";
    case OperationKind::add_process_set:
      return "add_process_set";
    case OperationKind::remove_process_set:
      return "remove_process_set";
  }
  HVD_ASSERT(!"an operation kind");
}

std::string_view name_of(DeviceKind device) {
  return device == DeviceKind::host ? "host memory" : "GPU memory";
}

int64_t Signature::elements() const {
  uint64_t count = 0;
  for (const Shape& shape : shapes) count += agreed_elements(shape);
  return static_cast<int64_t>(count);
}

uint64_t Signature::payload_bytes() const {
  return static_cast<uint64_t>(elements()) * element_bytes(dtype);
}

const Signature& SharedSignature::nothing() {
  static const Signature& nothing = *new Signature;  // threads may need it while the process exits
  return nothing;
}

bool is_fusable(OperationKind kind) {
  return kind == OperationKind::allreduce || kind == OperationKind::allgather ||
         kind == OperationKind::reducescatter;
}

bool is_control(OperationKind kind) {
  return kind == OperationKind::add_process_set || kind == OperationKind::remove_process_set;
}

bool may_fuse(const Signature& a, const Signature& b) {
  return is_fusable(a.kind) && a.kind == b.kind && a.dtype == b.dtype && a.op == b.op &&
         a.device == b.device && a.prescale == b.prescale && a.postscale == b.postscale &&
         a.fuse_with_others && b.fuse_with_others;
}

}  // namespace hvd
