#include "core/capi/plain_request.h"

#include <cmath>

#include "core/backend/host/batch_memory.h"
#include "core/capi/operation_of.h"
#include "core/negotiate/signature.h"

namespace hvd {
namespace {

bool is_one_tensor(const hvd_request& request) {
  if (request.operation.kind < HVD_ALLREDUCE || request.operation.kind > HVD_REDUCESCATTER)
    return false;
  if (request.count != 1 || request.splits != nullptr || request.sent_as != nullptr) return false;
  if (request.inputs == nullptr || request.outputs == nullptr) return false;
  if (request.inputs[0].device.type != HVD_HOST) return false;
  const hvd_dtype dtype = request.inputs[0].dtype;
  return dtype >= HVD_UINT8 && dtype <= HVD_BFLOAT16;
}

bool is_plain_reduction(const hvd_request& request) {
  const hvd_dtype dtype = request.inputs[0].dtype;
  const hvd_reduce_op op = request.operation.op;
  if (dtype == HVD_UINT16 || dtype == HVD_BOOL) return false;
  if (std::isnan(request.operation.prescale) || std::isnan(request.operation.postscale))
    return false;
  if (op == HVD_AVERAGE || op == HVD_SUM) return true;
  return request.operation.kind == HVD_ALLREDUCE && op >= HVD_MIN && op <= HVD_PRODUCT;
}

/// Sets the rows of `task`. Returns false if the tensor is empty, larger than `most` bytes, or
/// malformed.
bool measure(const hvd_tensor& tensor, size_t most, TensorTask& task) {
  if (tensor.dimensions < 0 || tensor.dimensions > static_cast<int32_t>(kMaxDimensions))
    return false;
  task.rows = 1;
  task.row_bytes = element_bytes(task.operation.dtype);
  for (int32_t i = 0; i < tensor.dimensions; ++i) {
    const int64_t length = tensor.shape[i];
    if (length <= 0 || static_cast<uint64_t>(length) > most / task.bytes()) return false;
    (i == 0 ? task.rows : task.row_bytes) *= static_cast<size_t>(length);
  }
  return task.bytes() <= most;
}

bool has_possible_rows(const TensorTask& task, const hvd_tensor& tensor, int rank, int size) {
  switch (task.operation.kind) {
    case OperationKind::allreduce:
      return task.output != nullptr;
    case OperationKind::broadcast:
      return task.output != nullptr && task.operation.root >= 0 && task.operation.root < size;
    case OperationKind::allgather:
      return task.output != nullptr && tensor.dimensions > 0;
    case OperationKind::alltoall:
      return task.output != nullptr && tensor.dimensions > 0 &&
             task.rows % static_cast<size_t>(size) == 0;
    case OperationKind::reducescatter:  // a rank that gets no rows needs no output
      return tensor.dimensions > 0 &&
             (task.output != nullptr || rows_of(task.rows, rank, size).count == 0);
    default:
      return false;
  }
}

}  // namespace

std::optional<TensorTask> tensor_task_of(const hvd_request& request, int rank, int size,
                                         const SizeLimits& limits) {
  if (!is_one_tensor(request)) return std::nullopt;
  const hvd_tensor& tensor = request.inputs[0];
  TensorTask task{.operation = operation_of(request),
                  .input = static_cast<const std::byte*>(tensor.data),
                  .output = static_cast<std::byte*>(request.outputs[0])};
  if (task.input == nullptr || !measure(tensor, limits.of(task.operation.kind), task))
    return std::nullopt;
  if (!has_possible_rows(task, tensor, rank, size)) return std::nullopt;
  if (task.reduces()) {
    if (!is_plain_reduction(request)) return std::nullopt;
    if (task.operation.prescale != 1.0 && !limits.prescales) return std::nullopt;
  }
  return task;
}

}  // namespace hvd
