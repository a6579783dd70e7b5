#include "core/backend/host/overlap.h"

#include <algorithm>
#include <numeric>

#include "core/backend/host/batch_memory.h"

namespace hvd {
namespace {

bool has_output(const BatchTensor& tensor) { return tensor.output != nullptr; }

/// The root of a broadcast has its results already if they are its inputs.
bool writes_nothing(const Batch& batch, int rank) {
  return std::ranges::none_of(batch.tensors, has_output) ||
         std::ranges::all_of(batch.tensors, [&](const BatchTensor& tensor) {
           return is_root_in_place(batch.operation, rank, tensor.input, tensor.output);
         });
}

}  // namespace

bool is_in_place(OperationKind kind, const std::byte* input, const std::byte* output) {
  return input == output && (kind == OperationKind::allreduce || kind == OperationKind::broadcast);
}

bool is_root_in_place(const Operation& operation, int rank, const std::byte* input,
                      const std::byte* output) {
  return operation.kind == OperationKind::broadcast && rank == operation.root && input == output;
}

std::vector<size_t> OverlapSearch::find(const Batch& batch, int rank, int size) {
  return search(batch, rank, [&](size_t tensor) {
    return output_bytes(batch, batch.tensors[tensor], rank, size);
  });
}

std::vector<size_t> OverlapSearch::find(const Batch& batch, int rank,
                                        const std::vector<size_t>& output_bytes) {
  return search(batch, rank, [&](size_t tensor) { return output_bytes[tensor]; });
}

template <class BytesOf>
std::vector<size_t> OverlapSearch::search(const Batch& batch, int rank,
                                          const BytesOf& output_bytes_of) {
  if (writes_nothing(batch, rank)) return {};
  collect(batch, rank, output_bytes_of);
  if (order_.size() != extents_.size()) {
    order_.resize(extents_.size());
    std::iota(order_.begin(), order_.end(), 0);
  }
  if (follow_one_another()) return {};
  std::ranges::sort(order_, {}, [&](uint32_t index) { return extents_[index].begin; });
  return written_overlaps();
}

/// Collects the ranges that the batch reads or writes. Only the root of a broadcast reads its
/// input. An output in place counts as written, because results are stored in the order of the
/// tensors.
template <class BytesOf>
void OverlapSearch::collect(const Batch& batch, int rank, const BytesOf& output_bytes_of) {
  extents_.clear();
  const bool reads =
      batch.operation.kind != OperationKind::broadcast || rank == batch.operation.root;
  for (size_t i = 0; i < batch.tensors.size(); ++i) {
    const BatchTensor& tensor = batch.tensors[i];
    if (is_in_place(batch.operation.kind, tensor.input, tensor.output)) {
      add(tensor.output, stored_bytes(tensor, batch.operation.dtype), i, true);
      continue;
    }
    if (reads) add(tensor.input, stored_bytes(tensor, batch.operation.dtype), i, false);
    add(tensor.output, output_bytes_of(i), i, true);
  }
}

void OverlapSearch::add(const std::byte* data, size_t bytes, size_t tensor, bool written) {
  if (data == nullptr || bytes == 0) return;
  const auto begin = reinterpret_cast<uintptr_t>(data);
  extents_.push_back({begin, begin + bytes, static_cast<uint32_t>(tensor), written});
}

/// Returns whether each extent ends before the next one begins, i.e. nothing overlaps.
bool OverlapSearch::follow_one_another() const {
  uintptr_t end = 0;
  for (const uint32_t index : order_) {
    if (extents_[index].begin < end) return false;
    end = extents_[index].end;
  }
  return true;
}

/// An extent overlaps an earlier extent if the largest end so far is greater than its begin. It
/// overlaps a later extent if the next one begins before its end.
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
