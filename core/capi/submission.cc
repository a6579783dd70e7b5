#include "core/capi/submission.h"

#include <fmt/core.h>

#include <algorithm>

#include "core/base/error.h"

namespace hvd {
namespace {

[[noreturn]] void refuse(const hvd_request& request, const std::string& why) {
  const char* name = request.name == nullptr ? "" : request.name;
  fail(Code::invalid_argument, fmt::format("operation \"{}\": {}", name, why));
}

OperationKind kind_of(const hvd_request& request) {
  switch (request.kind) {
    case HVD_ALLREDUCE:
      return OperationKind::allreduce;
    case HVD_ALLGATHER:
      return OperationKind::allgather;
    case HVD_BROADCAST:
      return OperationKind::broadcast;
    case HVD_BARRIER:
      return OperationKind::barrier;
    case HVD_ALLTOALL:
    case HVD_REDUCESCATTER:
    case HVD_JOIN:
      break;
  }
  refuse(request, fmt::format("{} is no kind of operation", static_cast<int>(request.kind)));
}

void check_header(const hvd_request& request, const hvd_world& world) {
  if (request.name == nullptr || *request.name == '\0') refuse(request, "a name is needed");
  if (std::char_traits<char>::length(request.name) > kMaxNameBytes)
    refuse(request, fmt::format("the name is longer than {} bytes", kMaxNameBytes));
  if (request.process_set != 0)
    refuse(request, fmt::format("no process set has the id {}", request.process_set));
  const bool barrier = request.kind == HVD_BARRIER;
  if (request.count < (barrier ? 0 : 1) || request.count > static_cast<int>(kMaxTensorsInGroup))
    refuse(request, fmt::format("{} tensors, expected 1 to {}", request.count, kMaxTensorsInGroup));
  if (request.kind == HVD_BROADCAST && (request.root < 0 || request.root >= world.size))
    refuse(request, fmt::format("root rank {} is outside 0 to {}", request.root, world.size - 1));
}

void check_reduction(const hvd_request& request, DType dtype) {
  if (request.op < HVD_AVERAGE || request.op > HVD_PRODUCT)
    refuse(request, fmt::format("{} is no reduction", static_cast<int>(request.op)));
  if (request.op == HVD_ADASUM) refuse(request, "the Adasum reduction is not in this version");
  if (dtype == DType::boolean && request.op != HVD_MIN && request.op != HVD_MAX)
    refuse(request, "bool tensors can be reduced with Min (and) or Max (or) only");
}

void check_tensor(const hvd_request& request, const hvd_tensor& tensor) {
  if (tensor.dtype < HVD_UINT8 || tensor.dtype > HVD_BFLOAT16)
    refuse(request, fmt::format("{} is no element type", static_cast<int>(tensor.dtype)));
  if (tensor.dtype != request.inputs[0].dtype) {
    refuse(request, fmt::format("the tensors of a group must have one element type, but there are "
                                "{} and {}",
                                name_of(static_cast<DType>(request.inputs[0].dtype)),
                                name_of(static_cast<DType>(tensor.dtype))));
  }
  if (tensor.dimensions < 0 || tensor.dimensions > static_cast<int>(kMaxDimensions))
    refuse(request, fmt::format("{} dimensions", tensor.dimensions));
  if (request.kind == HVD_ALLGATHER && tensor.dimensions == 0) {
    refuse(request, "a scalar has no first dimension to gather along; reshape it to one element");
  }
  if (std::any_of(tensor.shape, tensor.shape + tensor.dimensions, [](int64_t n) { return n < 0; }))
    refuse(request, "a dimension is negative");
}

Signature sign(const hvd_request& request, const Knobs& knobs) {
  Signature signature;
  signature.name = hash_name(request.name);
  signature.kind = kind_of(request);
  if (request.count > 0) signature.dtype = static_cast<DType>(request.inputs[0].dtype);
  if (request.kind == HVD_ALLREDUCE) {
    signature.op = static_cast<ReduceOp>(request.op);
    signature.prescale = request.prescale;
    signature.postscale = request.postscale;
  }
  if (request.kind == HVD_BROADCAST) signature.root = request.root;
  for (int32_t i = 0; i < request.count; ++i) {
    const hvd_tensor& tensor = request.inputs[i];
    Shape& shape = signature.shapes.emplace_back(tensor.shape, tensor.shape + tensor.dimensions);
    if (request.kind == HVD_ALLGATHER) shape[0] = -1;  // ranks need not agree on it
  }
  signature.fuse_with_others = request.count <= 1 || !knobs.disable_group_fusion;
  return signature;
}

}  // namespace

Request make_request(const hvd_request& request, const hvd_world& world, const Knobs& knobs) {
  check_header(request, world);
  for (int32_t i = 0; i < request.count; ++i) check_tensor(request, request.inputs[i]);
  if (request.kind == HVD_ALLREDUCE)
    check_reduction(request, static_cast<DType>(request.inputs[0].dtype));

  Request made;
  made.name = request.name;
  made.signature = sign(request, knobs);
  made.operation = std::make_shared<Operation>();
  made.operation->dtype = made.signature.dtype;
  if (request.kind == HVD_ALLGATHER) made.operation->gathered.resize(request.count);
  for (int32_t i = 0; i < request.count; ++i) {
    const hvd_tensor& tensor = request.inputs[i];
    BatchTensor& bound = made.tensors.emplace_back();
    bound.input = static_cast<const std::byte*>(tensor.data);
    bound.shape.assign(tensor.shape, tensor.shape + tensor.dimensions);
    if (request.kind == HVD_ALLGATHER) {
      bound.gathered = &made.operation->gathered[i];
    } else {
      bound.output = static_cast<std::byte*>(request.outputs[i]);
    }
  }
  if (request.release != nullptr)
    made.release = [release = request.release, owner = request.owner] { release(owner); };
  return made;
}

}  // namespace hvd
