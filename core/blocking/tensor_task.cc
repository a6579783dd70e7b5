#include "core/blocking/tensor_task.h"

#include <algorithm>

#include "core/backend/host/batch_memory.h"
#include "core/backend/host/overlap.h"
#include "core/backend/host/runs.h"
#include "core/base/assert.h"
#include "core/kernel/kernel.h"

namespace hvd {

size_t SizeLimits::of(OperationKind kind) const {
  switch (kind) {
    case OperationKind::allreduce:
      return reduced;
    case OperationKind::allgather:
      return gathered;
    case OperationKind::broadcast:
      return broadcast;
    case OperationKind::alltoall:
    case OperationKind::reducescatter:
      return dealt;
    default:
      break;
  }
  HVD_ASSERT(false);
}

bool gives(const TensorTask& task, int rank) {
  return task.operation.kind != OperationKind::broadcast || rank == task.operation.root;
}

int sources_of(const TensorTask& task, int ranks) {
  return task.operation.kind == OperationKind::broadcast ? 1 : ranks;
}

int source_of(const TensorTask& task, int index, int rank, int ranks) {
  return task.operation.kind == OperationKind::broadcast ? task.operation.root
                                                         : (rank + index) % ranks;
}

Stretch wanted_of(const TensorTask& task, int rank, int ranks) {
  switch (task.operation.kind) {
    case OperationKind::allreduce:
    case OperationKind::allgather:
    case OperationKind::broadcast:
      return {0, task.bytes()};
    case OperationKind::alltoall:
    case OperationKind::reducescatter: {
      const Rows own = rows_of(task.rows, rank, ranks);
      return {own.first * task.row_bytes, (own.first + own.count) * task.row_bytes};
    }
    default:
      break;
  }
  HVD_ASSERT(false);
}

size_t output_bytes(const TensorTask& task, int rank, int ranks) {
  const size_t wanted = wanted_of(task, rank, ranks).bytes();
  const bool from_all = task.operation.kind == OperationKind::allgather ||
                        task.operation.kind == OperationKind::alltoall;
  return from_all ? wanted * static_cast<size_t>(ranks) : wanted;
}

bool overlaps_own_input(const TensorTask& task, int rank, int ranks) {
  if (is_in_place(task.operation.kind, task.input, task.output) || !gives(task, rank)) return false;
  const auto input = reinterpret_cast<uintptr_t>(task.input);
  const auto output = reinterpret_cast<uintptr_t>(task.output);
  return output < input + task.bytes() && input < output + output_bytes(task, rank, ranks);
}

Stretch share_of(const TensorTask& task, int index, int shares) {
  const size_t bytes = task.bytes();
  const size_t lines = (bytes + kCacheLine - 1) / kCacheLine;
  const auto beginning_of = [&](int part) {
    const size_t line = lines * static_cast<size_t>(part) / static_cast<size_t>(shares);
    return std::min(line * kCacheLine, bytes);
  };
  return {beginning_of(index), beginning_of(index + 1)};
}

std::byte* place_of(const TensorTask& task, Stretch wanted, int source) {
  const auto before =
      static_cast<size_t>(task.operation.kind == OperationKind::broadcast ? 0 : source);
  return task.output + before * wanted.bytes();
}

void put(const TensorTask& task, Stretch wanted, Stretch part, int source, const void* input,
         CopyFunction copy) {
  std::byte* target = place_of(task, wanted, source) + (part.begin - wanted.begin);
  if (target != input) copy(target, input, part.bytes());
}

void reduce(const TensorTask& task, Stretch wanted, Stretch part,
            std::span<const void* const> inputs) {
  const size_t before = task.operation.kind == OperationKind::allreduce ? 0 : wanted.begin;
  std::byte* target = task.output + (part.begin - before);
  const size_t elements = part.bytes() / element_bytes(task.operation.dtype);
  const auto [op, after] =
      combination_of(task.operation.op, task.operation.dtype, task.operation.postscale,
                     static_cast<int>(inputs.size()));
  kernel::reduce(op, task.operation.dtype, target, inputs, elements, {.scaling = after});
}

}  // namespace hvd
