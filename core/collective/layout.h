// Where the chunks of a schedule lie in the virtual buffer, segment by segment. A value, the same
// on all ranks.
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
  /// Cuts `bytes` into segments of at most `segment_bytes`, and each segment into `chunks` nearly
  /// equal parts whose borders are multiples of `element_bytes` and, where the segment is large
  /// enough, of a cache line. For allreduce, broadcast.
  static Layout split(size_t bytes, size_t segment_bytes, int chunks, size_t element_bytes);

  /// Chunk i is block i, of `block_bytes[i]` (may be 0), and the blocks lie end to end. Each
  /// segment takes the next segment_bytes / room_chunks of every block, so that `room_chunks` of
  /// them (Schedule::room_chunks) fit into a unit. For everything but allreduce and broadcast.
  static Layout blocks(const std::vector<size_t>& block_bytes, size_t segment_bytes,
                       int room_chunks, size_t element_bytes);

  size_t bytes() const { return bytes_; }
  size_t segments() const;
  int chunks() const;
  /// The bytes of one chunk in one segment; empty where a block has ended.
  Extent extent(size_t segment, int chunk) const;
  /// Where a chunk lies within a unit that begins with chunk `base`: behind the chunks before it of
  /// the same segment. `chunk` may be the end.
  size_t offset_in_unit(size_t segment, int base, int chunk) const;

 private:
  size_t segment_length(size_t segment) const;     // split: of the whole segment
  size_t border(size_t segment, int chunk) const;  // split: where a chunk begins within its segment

  std::vector<size_t> block_starts_;  // blocks: [chunk + 1]; empty for split
  size_t bytes_ = 0;
  size_t step_ = 0;  // bytes of a full segment; with blocks, of one block in it
  size_t segments_ = 0;
  size_t full_segments_ = 0;  // blocks: the segments that take step_ bytes of every block
  size_t element_bytes_ = 1;
  int chunks_ = 1;
};

}  // namespace hvd
