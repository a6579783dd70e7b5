// Counters of the engine. They are always on. An Event describes one operation; counters are totals
// of all operations.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/operation.h"
#include "core/base/route.h"

namespace hvd {

inline constexpr size_t kOperationKinds = static_cast<size_t>(kLastOperationKind) + 1;

/// The counters of one rank since the start of its Engine. `Number`: uint64_t in a snapshot.
template <class Number>
struct CounterFields {
  std::array<Number, kOperationKinds> operations{};  ///< by OperationKind: completed without error
  std::array<Number, kOperationKinds> bytes{};       ///< of the inputs of this rank to these
  Number failed{};                                   ///< operations that completed with an error
  std::array<Number, kWays> batches{};               ///< by Way: batches moved by Mover::host
  std::array<Number, kMovers> batches_by{};          ///< by Mover, except Mover::host
  Number tensors{};       ///< tensors in all batches; divided by the batches: tensors per batch
  Number cycles{};        ///< turns in which an agreement arrived
  Number by_slot{};       ///< requests announced as a slot: cache hits
  Number in_full{};       ///< requests announced with their signature: cache misses
  Number stalls{};        ///< stall reports; only on rank 0
  Number device_bytes{};  ///< own buffers on devices, which only grow
  Number pinned_bytes{};  ///< own buffers in pinned host memory, which only grow
};
using CounterValues = CounterFields<uint64_t>;

/// Accesses are relaxed and order nothing else: a snapshot is not consistent across counters. The
/// progress token serializes writers, so add() needs no atomic addition.
class Counter {
 public:
  void add(uint64_t count) { set(value() + count); }
  void set(uint64_t value) { value_.store(value, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }
  operator uint64_t() const { return value(); }

 private:
  std::atomic<uint64_t> value_{0};
};

/// Written by the holder of the progress token, read by any thread.
class Counters {
 public:
  void operation_done(OperationKind kind, uint64_t bytes) {
    fields_.operations[static_cast<size_t>(kind)].add(1);
    fields_.bytes[static_cast<size_t>(kind)].add(bytes);
  }
  void operation_failed() { fields_.failed.add(1); }
  void batch_moved(const Route& route, uint64_t tensors) {
    Counter& batches = route.mover == Mover::host
                           ? fields_.batches[static_cast<size_t>(route.way)]
                           : fields_.batches_by[static_cast<size_t>(route.mover)];
    batches.add(1);
    fields_.tensors.add(tensors);
  }
  void cycle() { fields_.cycles.add(1); }
  /// Both are totals.
  void announced(uint64_t by_slot, uint64_t in_full) {
    fields_.by_slot.set(by_slot);
    fields_.in_full.set(in_full);
  }
  void stall_reported() { fields_.stalls.add(1); }
  /// Both are totals.
  void own_buffers(uint64_t device_bytes, uint64_t pinned_bytes) {
    fields_.device_bytes.set(device_bytes);
    fields_.pinned_bytes.set(pinned_bytes);
  }

  CounterValues snapshot() const;

 private:
  CounterFields<Counter> fields_;
};

/// The names of the counters, for example "operations.allreduce". They are never destroyed.
const std::vector<std::string>& counter_names();
/// The values in the order of counter_names().
std::vector<uint64_t> list_of(const CounterValues& values);

}  // namespace hvd
