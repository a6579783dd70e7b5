// Ranges of the concatenated tensors of a batch: what fits into a buffer at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "core/backend/backend.h"
#include "core/backend/host/batch_memory.h"
#include "core/device/driver_api.h"

namespace hvd::nccl {

inline device::DevicePointer address_of(const std::byte* memory) {
  return reinterpret_cast<device::DevicePointer>(memory);
}
/// The next multiple of `alignment`.
inline size_t aligned(size_t bytes, size_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

/// A range of every part of a batch. The parts of an allreduce or broadcast are one, those of other
/// operations one per rank or pair of ranks.
struct Range {
  size_t begin = 0;
  size_t bytes = 0;  ///< of the longest part

  /// The bytes of a part that are in the range.
  size_t of(size_t part_bytes) const {
    return std::min(bytes, part_bytes - std::min(part_bytes, begin));
  }
};

/// Ranges of `bytes` each, except the last, of parts of up to `longest` bytes.
inline std::vector<Range> ranges_of(size_t longest, size_t bytes) {
  std::vector<Range> all;
  for (size_t begin = 0; begin < longest; begin += bytes)
    all.push_back({begin, std::min(bytes, longest - begin)});
  return all;
}

/// How the elements of a tensor lie in its memory, if not as they are sent.
struct Stored {
  DType as = DType::float32;
  size_t factor = 1;  ///< bytes in memory per byte that is sent
};
inline std::optional<Stored> stored(const BatchTensor& tensor, DType sent_as) {
  if (!tensor.stored_as) return std::nullopt;
  return Stored{*tensor.stored_as, element_bytes(*tensor.stored_as) / element_bytes(sent_as)};
}

/// Memory of several tensors on the GPU, concatenated, in bytes that are sent.
class Stretch {
 public:
  /// `memory` 0: none on this rank.
  void add(device::DevicePointer memory, size_t bytes, std::optional<Stored> stored = {}) {
    if (bytes > 0) pieces_.push_back({memory, bytes_, bytes, stored});
    bytes_ += bytes;
  }
  /// The next tensor begins at a multiple of `alignment`.
  void align(size_t alignment) { bytes_ = aligned(bytes_, alignment); }
  size_t bytes() const { return bytes_; }

  /// Calls `see(memory, offset in the range, bytes)` for each piece that is in the range.
  template <class See>
  void visit(const Range& range, See see) const {
    visit_stored(range, [&](device::DevicePointer memory, size_t offset, size_t bytes,
                            const std::optional<DType>&) { see(memory, offset, bytes); });
  }
  /// Calls `see(memory, offset in the range, bytes, type in memory)`.
  template <class See>
  void visit_stored(const Range& range, See see) const {
    for (const Piece& piece : pieces_) {
      const size_t begin = std::max(range.begin, piece.begin);
      const size_t end = std::min(range.begin + range.bytes, piece.begin + piece.bytes);
      if (begin >= end) continue;
      const size_t factor = piece.stored ? piece.stored->factor : 1;
      const size_t skipped = piece.memory == 0 ? 0 : (begin - piece.begin) * factor;
      see(piece.memory + skipped, begin - range.begin, end - begin,
          piece.stored ? std::optional(piece.stored->as) : std::nullopt);
    }
  }

 private:
  struct Piece {
    device::DevicePointer memory = 0;
    size_t begin = 0;
    size_t bytes = 0;
    std::optional<Stored> stored{};
  };
  std::vector<Piece> pieces_;
  size_t bytes_ = 0;
};

/// The rows of all tensors of a reducescatter that each rank gets, from the inputs of this rank.
/// Each begins at a multiple of `alignment`.
inline std::vector<Stretch> parts_by_rows(const Batch& batch, int size, size_t alignment) {
  std::vector<Stretch> parts(static_cast<size_t>(size));
  for (const BatchTensor& tensor : batch.tensors) {
    const size_t row = row_bytes(tensor, batch.operation.dtype);
    for (int to = 0; to < size; ++to) {
      const Rows rows = rows_of(static_cast<size_t>(tensor.shape[0]), to, size);
      Stretch& part = parts[static_cast<size_t>(to)];
      part.add(tensor.input == nullptr ? 0 : address_of(tensor.input) + rows.first * row,
               rows.count * row);
      part.align(alignment);
    }
  }
  return parts;
}

}  // namespace hvd::nccl
