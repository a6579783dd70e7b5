#include "core/negotiate/signature.h"

namespace hvd {
namespace {

/// Returns the number of elements for packing. The first dimension of an allgather or alltoall is
/// not agreed, so it counts as one row.
uint64_t agreed_elements(const Shape& shape) {
  uint64_t count = 1;
  for (const int64_t dimension : shape) {
    if (dimension != kFreeDimension) count *= static_cast<uint64_t>(dimension);
  }
  return count;
}

}  // namespace

int64_t Signature::elements() const {
  uint64_t count = 0;
  for (const Shape& shape : shapes) count += agreed_elements(shape);
  return static_cast<int64_t>(count);
}

uint64_t Signature::payload_bytes() const {
  return static_cast<uint64_t>(elements()) * element_bytes(operation.dtype);
}

const Signature& SharedSignature::nothing() {
  static const Signature& nothing =
      *new Signature;  // never destroyed: threads may use it while the process exits
  return nothing;
}

bool may_fuse(const Signature& a, const Signature& b) {
  return is_fusable(a.operation.kind) && a.operation == b.operation && a.fuse_with_others &&
         b.fuse_with_others;
}

}  // namespace hvd
