// Tensors concatenated to one virtual buffer: the memory that a fused batch reads and writes
// without packing it.
#pragma once

#include <algorithm>
#include <cstddef>

#include "core/base/assert.h"
#include "core/base/bytes.h"
#include "core/base/small_vector.h"

namespace hvd {

/// A value. Borrows the listed memory.
class GatherList {
 public:
  /// Appends `bytes` at `data`. Ignores empty pieces.
  void add(std::byte* data, size_t bytes);
  /// Appends `bytes` that have no memory on this rank.
  void add_absent(size_t bytes);
  /// Appends all of `other`.
  void add(const GatherList& other);
  /// Returns the part [offset, offset + bytes), all of which must have memory.
  GatherList part(size_t offset, size_t bytes) const;

  size_t bytes() const { return ends_.empty() ? 0 : ends_.back(); }
  /// Number of bytes that have memory.
  size_t bytes_present() const;
  bool empty() const { return bytes() == 0; }
  /// Returns the address of [offset, offset + bytes), which must be present and not empty; nullptr
  /// if it spans several pieces.
  std::byte* in_one_piece(size_t offset, size_t bytes) const;
  /// Returns whether the byte at `offset` has memory.
  bool has(size_t offset) const { return data_[index_of(offset)] != nullptr; }
  bool operator==(const GatherList&) const = default;

  /// Calls `visit(MutableBytes piece, size_t offset)` for each piece of [offset, offset + bytes);
  /// `offset` counts from the start of that range. All of it must be present.
  template <class Visit>
  void for_each(size_t offset, size_t bytes, Visit visit) const {
    for (size_t i = index_of(offset), done = 0; done < bytes; ++i) {
      HVD_ASSERT(data_[i] != nullptr);
      const size_t start = i == 0 ? 0 : ends_[i - 1];
      const size_t skip = offset + done - start;
      const size_t count = std::min(ends_[i] - start - skip, bytes - done);
      visit(MutableBytes{data_[i] + skip, count}, done);
      done += count;
    }
  }

 private:
  size_t index_of(size_t offset) const;

  void append(std::byte* data, size_t bytes);

  static constexpr size_t kFew = 4;  // pieces stored inline; enough for one tensor

  SmallVector<std::byte*, kFew> data_;  // nullptr: absent
  SmallVector<size_t, kFew> ends_;
};

}  // namespace hvd
