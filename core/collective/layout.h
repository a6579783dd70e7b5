// The position of a schedule's chunks in the virtual buffer, segment by segment. A value, equal on
// all ranks.
#pragma once

#include <cstddef>
#include <vector>

namespace hvd {

struct Extent {
  size_t offset = 0;  ///< in the virtual buffer
  size_t bytes = 0;
};

class Layout {
 public:
  /// Splits `bytes` into segments of at most `segment_bytes`, and each segment into `chunks` nearly
  /// equal parts. Their boundaries are multiples of `element_bytes` and, if the segment is large
  /// enough, of a cache line. For allreduce and broadcast.
  static Layout split(size_t bytes, size_t segment_bytes, int chunks, size_t element_bytes);

  /// Chunk i is block i, with `block_bytes[i]` bytes (may be 0); the blocks are contiguous. Each
  /// segment takes the next segment_bytes / room_chunks of every block, so that `room_chunks` of
  /// them (Schedule::room_chunks) fit into a unit. For all operations except allreduce and
  /// broadcast.
  static Layout blocks(const std::vector<size_t>& block_bytes, size_t segment_bytes,
                       int room_chunks, size_t element_bytes);

  size_t bytes() const { return bytes_; }
  size_t segments() const;
  int chunks() const;
  /// Returns the extent of one chunk in one segment; empty after the end of a block.
  Extent extent(size_t segment, int chunk) const;
  /// Returns the offset of a chunk within a unit that begins with chunk `base`: after the previous
  /// chunks of the same segment. `chunk` may be one past the end.
  size_t offset_in_unit(size_t segment, int base, int chunk) const;

 private:
  size_t segment_length(size_t segment) const;     // split: length of the whole segment
  size_t border(size_t segment, int chunk) const;  // split: offset of a chunk within its segment

  std::vector<size_t> block_starts_;  // blocks: [chunk + 1]; empty for split
  size_t bytes_ = 0;
  size_t step_ = 0;  // bytes of a full segment; for blocks, bytes of one block in it
  size_t segments_ = 0;
  size_t full_segments_ = 0;  // blocks: the segments that take step_ bytes of every block
  size_t element_bytes_ = 1;
  int chunks_ = 1;
};

}  // namespace hvd
