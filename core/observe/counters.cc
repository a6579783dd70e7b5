#include "core/observe/counters.h"

#include <fmt/core.h>

#include <string_view>

namespace hvd {
namespace {

/// Calls `see(name, label, value)` for each counter. `label` may be empty.
template <class See>
void visit(const CounterValues& values, See see) {
  for (size_t i = 0; i < kOperationKinds; ++i)
    see("operations", name_of(static_cast<OperationKind>(i)), values.operations[i]);
  for (size_t i = 0; i < kOperationKinds; ++i) {
    const auto kind = static_cast<OperationKind>(i);
    if (moves_tensors(kind)) see("bytes", name_of(kind), values.bytes[i]);
  }
  see("failed_operations", "", values.failed);
  for (size_t i = 0; i < kWays; ++i)
    see("batches", name_of(static_cast<Way>(i)), values.batches[i]);
  for (const Mover mover :
       {Mover::mpi, Mover::nccl, Mover::staged, Mover::hierarchical, Mover::ipc})
    see("batches", name_of(mover), values.batches_by[static_cast<size_t>(mover)]);
  see("batched_tensors", "", values.tensors);
  see("cycles", "", values.cycles);
  see("cache_hits", "", values.by_slot);
  see("cache_misses", "", values.in_full);
  see("stall_reports", "", values.stalls);
  see("buffer_bytes", "device", values.device_bytes);
  see("buffer_bytes", "pinned", values.pinned_bytes);
}

}  // namespace

CounterValues Counters::snapshot() const {
  CounterValues values;
  std::ranges::copy(fields_.operations, values.operations.begin());
  std::ranges::copy(fields_.bytes, values.bytes.begin());
  values.failed = fields_.failed;
  std::ranges::copy(fields_.batches, values.batches.begin());
  std::ranges::copy(fields_.batches_by, values.batches_by.begin());
  values.tensors = fields_.tensors;
  values.cycles = fields_.cycles;
  values.by_slot = fields_.by_slot;
  values.in_full = fields_.in_full;
  values.stalls = fields_.stalls;
  values.device_bytes = fields_.device_bytes;
  values.pinned_bytes = fields_.pinned_bytes;
  return values;
}

const std::vector<std::string>& counter_names() {
  static const std::vector<std::string>& names = *new std::vector<std::string>([] {
    std::vector<std::string> made;
    visit({}, [&](std::string_view name, std::string_view label, uint64_t) {
      made.push_back(label.empty() ? std::string(name) : fmt::format("{}.{}", name, label));
    });
    return made;
  }());
  return names;
}

std::vector<uint64_t> list_of(const CounterValues& values) {
  std::vector<uint64_t> list;
  visit(values, [&](std::string_view, std::string_view, uint64_t value) { list.push_back(value); });
  return list;
}

}  // namespace hvd
