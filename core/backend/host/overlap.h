// Which outputs of a batch share memory with something else that the batch reads or writes. Passes
// read and write the tensors in an order of their own, so such an output must not be written
// before everything has been read: it goes to private memory first (private_outputs.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/backend/backend.h"
#include "core/backend/host/eager_task.h"

namespace hvd {

/// Whether the output shares memory with the input that `rank` of `size` reads. Not where an
/// allreduce or a broadcast is in place: output and input are the same memory.
bool overlaps_own_input(const EagerTask& task, int rank, int size);

/// Searches one batch after the other. Keeps the order of the addresses of the last one, because
/// batches repeat: as long as it still fits, a search is one pass over the tensors. Owned and used
/// by one thread.
class OverlapSearch {
 public:
  /// The indices, ascending, of the tensors of `batch` whose output overlaps the input or output
  /// of another tensor, or, unless it is in place, its own input. Usually none. `rank` of `size`:
  /// this one within the group.
  std::vector<size_t> find(const Batch& batch, int rank, int size);

 private:
  /// Memory that the batch reads, or that it writes.
  struct Extent {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    uint32_t tensor = 0;
    bool written = false;
  };
  void collect(const Batch& batch, int rank, int size);
  void add(const std::byte* data, size_t bytes, size_t tensor, bool written);
  const Extent& in_order(size_t place) const { return extents_[order_[place]]; }
  bool follow_one_another() const;
  std::vector<size_t> written_overlaps() const;

  std::vector<Extent> extents_;
  std::vector<uint32_t> order_;  ///< indices of extents_, by address
};

}  // namespace hvd
