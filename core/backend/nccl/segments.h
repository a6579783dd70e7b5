// Divides a batch that goes through host memory into segments, so that pinned memory is limited and
// copies overlap with the work of the host backend. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/backend/backend.h"
#include "core/backend/nccl/row_counts.h"
#include "core/device/driver_api.h"

namespace hvd::nccl {

/// Pinned memory of a segment. Large enough for the bandwidth of the host backend.
inline constexpr size_t kSegmentBytes = size_t{4} << 20;
/// Segments of a batch. Each one needs unit numbers of its own, which are limited. Batches of more
/// than this many times kSegmentBytes have larger segments.
inline constexpr size_t kMostSegments = 256;

/// A part of the batch that is one run of the host backend. Offsets are within its pinned memory.
struct Segment {
  struct Piece {
    device::DevicePointer on_gpu = 0;
    size_t pinned = 0;
    size_t bytes = 0;                  ///< in pinned memory
    std::optional<DType> stored_as{};  ///< on the GPU, if not the type of the batch
  };
  struct Tensor {
    size_t input = 0;
    size_t output = 0;
    size_t output_bytes = 0;
    Shape shape{};
    std::vector<int32_t> splits{};
    bool is_absent = false;  ///< this rank has joined: its input is the neutral element
  };

  DType dtype = DType::uint8;      ///< of `tensors`
  std::vector<Tensor> tensors{};   ///< equal on all ranks except for memory
  std::vector<Piece> downloads{};  ///< before the run, to its inputs
  std::vector<Piece> neutral{};    ///< of inputs, without memory on the GPU
  std::vector<Piece> uploads{};    ///< after the run, from its outputs
  size_t pinned_bytes = 0;         ///< 0: this rank has no memory for it
  bool has_unequal_parts = false;  ///< allgather, alltoall: the run exchanges sizes
};

struct SegmentFacts {
  int rank = 0;
  int size = 1;
  RowCounts rows{};  ///< of an allgather or alltoall
  size_t segment_bytes = kSegmentBytes;
};

/// The segments of `batch` in the order in which they run: as many on all ranks, none if it has no
/// data. Adasum needs whole tensors, which may exceed segment_bytes.
std::vector<Segment> segments_of(const Batch& batch, const SegmentFacts& facts);

}  // namespace hvd::nccl
