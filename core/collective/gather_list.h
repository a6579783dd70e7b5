// Tensors end to end as one virtual buffer: what a fused batch reads and writes, without copying it
// together.
#pragma once

#include <algorithm>
#include <cstddef>

#include "core/base/assert.h"
#include "core/base/bytes.h"
#include "core/base/small_vector.h"

namespace hvd {

/// A value. Borrows the memory it lists.
class GatherList {
 public:
  /// Appends `bytes` at `data`. Empty pieces are left out.
  void add(std::byte* data, size_t bytes);
  /// Appends `bytes` that have no memory here.
  void add_absent(size_t bytes);
  /// Appends all of `other`.
  void add(const GatherList& other);
  /// What lies in [offset, offset + bytes), all of which must have memory.
  GatherList part(size_t offset, size_t bytes) const;

  size_t bytes() const { return ends_.empty() ? 0 : ends_.back(); }
  /// Of those that have memory.
  size_t bytes_present() const;
  bool empty() const { return bytes() == 0; }
  /// [offset, offset + bytes), none of it absent and at least a byte; nullptr where it lies in
  /// several pieces.
  std::byte* in_one_piece(size_t offset, size_t bytes) const;
  /// Whether there is memory for the byte at `offset`.
  bool has(size_t offset) const { return data_[index_of(offset)] != nullptr; }
  bool operator==(const GatherList&) const = default;

  /// Calls `visit(MutableBytes piece, size_t offset)` for each piece of [offset, offset + bytes),
  /// where the second argument counts from the start of that range. None of it may be absent.
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

  static constexpr size_t kFew = 4;  // pieces, as of one tensor

  SmallVector<std::byte*, kFew> data_;  // nullptr: absent
  SmallVector<size_t, kFew> ends_;
};

}  // namespace hvd
