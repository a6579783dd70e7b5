#include "core/backend/host/eager_task.h"

#include <algorithm>

#include "core/backend/host/batch_memory.h"
#include "core/backend/host/runs.h"
#include "core/base/assert.h"
#include "core/kernel/kernel.h"

namespace hvd {

size_t EagerLimits::of(Transfer transfer) const {
  switch (transfer) {
    case Transfer::allreduce:
      return reduced;
    case Transfer::allgather:
      return gathered;
    case Transfer::broadcast:
      return broadcast;
    case Transfer::alltoall:
    case Transfer::reducescatter:
      return dealt;
  }
  HVD_ASSERT(false);
}

bool gives(const EagerTask& task, int rank) {
  return task.transfer != Transfer::broadcast || rank == task.root;
}

int sources_of(const EagerTask& task, int ranks) {
  return task.transfer == Transfer::broadcast ? 1 : ranks;
}

int source_of(const EagerTask& task, int index, int rank, int ranks) {
  return task.transfer == Transfer::broadcast ? task.root : (rank + index) % ranks;
}

Stretch wanted_of(const EagerTask& task, int rank, int ranks) {
  switch (task.transfer) {
    case Transfer::allreduce:
    case Transfer::allgather:
    case Transfer::broadcast:
      return {0, task.bytes()};
    case Transfer::alltoall:
    case Transfer::reducescatter: {
      const Rows own = rows_of(task.rows, rank, ranks);
      return {own.first * task.row_bytes, (own.first + own.count) * task.row_bytes};
    }
  }
  HVD_ASSERT(false);
}

size_t output_bytes(const EagerTask& task, int rank, int ranks) {
  const size_t wanted = wanted_of(task, rank, ranks).bytes();
  const bool from_all = task.transfer == Transfer::allgather || task.transfer == Transfer::alltoall;
  return from_all ? wanted * static_cast<size_t>(ranks) : wanted;
}

Stretch share_of(const EagerTask& task, int index, int shares) {
  const size_t bytes = task.bytes();
  const size_t lines = (bytes + kCacheLine - 1) / kCacheLine;
  const auto beginning_of = [&](int part) {
    const size_t line = lines * static_cast<size_t>(part) / static_cast<size_t>(shares);
    return std::min(line * kCacheLine, bytes);
  };
  return {beginning_of(index), beginning_of(index + 1)};
}

std::byte* place_of(const EagerTask& task, Stretch wanted, int source) {
  const auto before = static_cast<size_t>(task.transfer == Transfer::broadcast ? 0 : source);
  return task.output + before * wanted.bytes();
}

void put(const EagerTask& task, Stretch wanted, Stretch part, int source, const void* input,
         CopyFunction copy) {
  std::byte* target = place_of(task, wanted, source) + (part.begin - wanted.begin);
  if (target != input) copy(target, input, part.bytes());
}

void reduce(const EagerTask& task, Stretch wanted, Stretch part,
            std::span<const void* const> inputs) {
  const size_t before = task.transfer == Transfer::allreduce ? 0 : wanted.begin;
  std::byte* target = task.output + (part.begin - before);
  const size_t elements = part.bytes() / element_bytes(task.dtype);
  const auto [op, after] =
      combination_of(task.op, task.dtype, task.postscale, static_cast<int>(inputs.size()));
  kernel::reduce(op, task.dtype, target, inputs, elements, {.scaling = after});
}

}  // namespace hvd
