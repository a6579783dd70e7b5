// Finds the outputs of a batch that share memory with other tensors of the batch. A PassSequence
// reads and writes tensors in any order, so such an output is first written to private memory
// (private_outputs.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/backend/backend.h"

namespace hvd {

/// Returns whether output and input are the same memory and the operation supports that.
bool is_in_place(OperationKind kind, const std::byte* input, const std::byte* output);

/// Returns whether `rank` is the root of a broadcast whose output is its input. It must not write
/// this memory, not even the same values: other threads may read it, and it may be that of a sender
/// (docs/decisions/0063).
bool is_root_in_place(const Operation& operation, int rank, const std::byte* input,
                      const std::byte* output);

/// Searches batches for overlaps. Batches repeat, so it keeps the order of the addresses of the
/// last batch. While that order is right, a search is one pass over the tensors. Owned and used by
/// one thread.
class OverlapSearch {
 public:
  /// Returns the indices, ascending, of the tensors of `batch` whose output overlaps the input or
  /// output of another tensor, or its own input unless it is in place. `rank` of `size`: this rank
  /// within the group.
  std::vector<size_t> find(const Batch& batch, int rank, int size);
  /// The same, for outputs of these sizes in bytes, one per tensor: rows may differ between ranks.
  std::vector<size_t> find(const Batch& batch, int rank, const std::vector<size_t>& output_bytes);

 private:
  /// A range of memory that the batch reads or writes.
  struct Extent {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    uint32_t tensor = 0;
    bool written = false;
  };
  template <class BytesOf>
  std::vector<size_t> search(const Batch& batch, int rank, const BytesOf& output_bytes_of);
  template <class BytesOf>
  void collect(const Batch& batch, int rank, const BytesOf& output_bytes_of);
  void add(const std::byte* data, size_t bytes, size_t tensor, bool written);
  const Extent& in_order(size_t place) const { return extents_[order_[place]]; }
  bool follow_one_another() const;
  std::vector<size_t> written_overlaps() const;

  std::vector<Extent> extents_;
  std::vector<uint32_t> order_;  ///< indices of extents_, by address
};

}  // namespace hvd
