#include "core/backend/host/overlap.h"

#include <algorithm>
#include <numeric>

#include "core/backend/host/batch_memory.h"

namespace hvd {
namespace {

bool is_in_place(Transfer transfer, const std::byte* input, const std::byte* output) {
  return input == output && (transfer == Transfer::allreduce || transfer == Transfer::broadcast);
}

bool has_output(const BatchTensor& tensor) { return tensor.output != nullptr; }

}  // namespace

bool overlaps_own_input(const EagerTask& task, int rank, int size) {
  if (is_in_place(task.transfer, task.input, task.output) || !gives(task, rank)) return false;
  const auto input = reinterpret_cast<uintptr_t>(task.input);
  const auto output = reinterpret_cast<uintptr_t>(task.output);
  return output < input + task.bytes() && input < output + output_bytes(task, rank, size);
}

std::vector<size_t> OverlapSearch::find(const Batch& batch, int rank, int size) {
  if (std::ranges::none_of(batch.tensors, has_output)) return {};
  collect(batch, rank, size);
  if (order_.size() != extents_.size()) {
    order_.resize(extents_.size());
    std::iota(order_.begin(), order_.end(), 0);
  }
  if (follow_one_another()) return {};
  std::ranges::sort(order_, {}, [&](uint32_t index) { return extents_[index].begin; });
  return written_overlaps();
}

/// Of a broadcast, the root alone reads its input. Its result in place counts as written, because
/// results are stored in the order of the tensors.
void OverlapSearch::collect(const Batch& batch, int rank, int size) {
  extents_.clear();
  const bool reads = batch.transfer != Transfer::broadcast || rank == batch.root;
  for (size_t i = 0; i < batch.tensors.size(); ++i) {
    const BatchTensor& tensor = batch.tensors[i];
    if (is_in_place(batch.transfer, tensor.input, tensor.output)) {
      add(tensor.output, tensor_bytes(tensor, batch.dtype), i, true);
      continue;
    }
    if (reads) add(tensor.input, tensor_bytes(tensor, batch.dtype), i, false);
    add(tensor.output, output_bytes(batch, tensor, rank, size), i, true);
  }
}

void OverlapSearch::add(const std::byte* data, size_t bytes, size_t tensor, bool written) {
  if (data == nullptr || bytes == 0) return;
  const auto begin = reinterpret_cast<uintptr_t>(data);
  extents_.push_back({begin, begin + bytes, static_cast<uint32_t>(tensor), written});
}

/// Each extent ends before the next one in the order begins, so nothing overlaps.
bool OverlapSearch::follow_one_another() const {
  uintptr_t end = 0;
  for (const uint32_t index : order_) {
    if (extents_[index].begin < end) return false;
    end = extents_[index].end;
  }
  return true;
}

/// An extent overlaps one before it if the farthest end of those lies behind its beginning, and one
/// behind it if the next one begins before its end.
std::vector<size_t> OverlapSearch::written_overlaps() const {
  std::vector<size_t> tensors;
  uintptr_t farthest_end = 0;
  for (size_t i = 0; i < order_.size(); ++i) {
    const Extent& extent = in_order(i);
    const bool before = farthest_end > extent.begin;
    const bool behind = i + 1 < order_.size() && in_order(i + 1).begin < extent.end;
    if (extent.written && (before || behind)) tensors.push_back(extent.tensor);
    farthest_end = std::max(farthest_end, extent.end);
  }
  std::ranges::sort(tensors);
  return tensors;
}

}  // namespace hvd
