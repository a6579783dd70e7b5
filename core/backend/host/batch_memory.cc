#include "core/backend/host/batch_memory.h"

#include <algorithm>

#include "core/base/assert.h"
#include "core/kernel/kernel.h"

namespace hvd {

size_t tensor_bytes(const BatchTensor& tensor, DType dtype) {
  return static_cast<size_t>(element_count(tensor.shape)) * element_bytes(dtype);
}

size_t stored_bytes(const BatchTensor& tensor, DType dtype) {
  return tensor_bytes(tensor, tensor.stored_as.value_or(dtype));
}

size_t row_bytes(const BatchTensor& tensor, DType dtype) {
  HVD_ASSERT(!tensor.shape.empty());
  const Shape row(tensor.shape.begin() + 1, tensor.shape.end());
  return static_cast<size_t>(element_count(row)) * element_bytes(dtype);
}

Rows rows_of(size_t rows, int rank, int size) {
  const size_t place = static_cast<size_t>(rank), ranks = static_cast<size_t>(size);
  const size_t least = rows / ranks, longer = rows % ranks;
  return {place * least + std::min(place, longer), least + (place < longer ? 1 : 0)};
}

size_t output_bytes(const Batch& batch, const BatchTensor& tensor, int rank, int size) {
  if (tensor.stored_as) return stored_bytes(tensor, batch.operation.dtype);
  const size_t bytes = tensor_bytes(tensor, batch.operation.dtype);
  if (batch.operation.kind == OperationKind::allgather) return bytes * static_cast<size_t>(size);
  if (batch.operation.kind != OperationKind::reducescatter) return bytes;
  return rows_of(static_cast<size_t>(tensor.shape[0]), rank, size).count *
         row_bytes(tensor, batch.operation.dtype);
}

void add_input(GatherList& list, const std::byte* data, size_t bytes) {
  list.add(const_cast<std::byte*>(data), bytes);  // the executor does not write to inputs
}

bool needs_output(const BatchTensor& tensor) {
  return tensor.output == nullptr && tensor.gathered != nullptr;
}

void allocate_output(BatchTensor& tensor, int64_t rows, DType dtype) {
  Gathered& gathered = *tensor.gathered;
  gathered.shape = tensor.shape;
  gathered.shape[0] = rows;
  gathered.memory = AlignedBuffer(static_cast<size_t>(rows) * row_bytes(tensor, dtype));
  tensor.output = gathered.memory.data();
}

ReducedTensors::ReducedTensors(const Batch& batch) {
  tensors.reserve(batch.tensors.size());
  for (const BatchTensor& tensor : batch.tensors) {
    Tensor& made = tensors.emplace_back();
    made = {tensor.input, tensor.output, tensor_bytes(tensor, batch.operation.dtype)};
    if (tensor.output == nullptr) {
      const AlignedBuffer& stand_in = stand_ins.emplace_back(made.bytes);
      kernel::fill_neutral(batch.operation.op, batch.operation.dtype, stand_in.data(),
                           made.bytes / element_bytes(batch.operation.dtype));
      made.input = made.output = stand_in.data();
    }
    add_input(inputs, made.input, made.bytes);
    outputs.add(made.output, made.bytes);
  }
}

}  // namespace hvd
