// Moves the tensors of one batch, once the ranks have agreed how. Owns the batch: the memory of the
// tensors is on loan until the mover is destroyed.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "core/backend/backend.h"
#include "core/backend/nccl/communicator.h"
#include "core/backend/nccl/gpu.h"
#include "core/backend/nccl/row_counts.h"
#include "core/backend/nccl/segments.h"

namespace hvd::nccl {

/// For the holder of the progress token, with the context of the GPU current. Destroyed when its
/// work on the GPU is done, on any thread.
class Mover {
 public:
  virtual ~Mover() = default;
  /// As Run::advance().
  virtual Progress advance() = 0;
  /// See Run::result(). Not nullptr after `launched`.
  virtual std::shared_ptr<const DevicePoint> result() const = 0;
  /// Whether the next advance() waits for data that the host backend gets from other ranks.
  virtual bool waits_for_ranks() const { return false; }
  /// Ends the use of groups of ranks. Work may still be queued on the GPU.
  virtual void cancel() = 0;
};

/// How a Mover by NCCL reduces across hosts, for an allreduce in levels.
struct AcrossHosts {
  Backend* host = nullptr;
  GroupLevels groups{};  ///< `all`: one rank of each host
};

/// What both movers need.
struct MoverFacts {
  Batch batch;
  int rank = 0;
  int size = 1;
  RowCounts rows{};                      ///< of an allgather or alltoall
  size_t segment_bytes = kSegmentBytes;  ///< staged: see segments.h
  size_t scratch_bytes = SIZE_MAX;       ///< by NCCL: see ScriptFacts::scratch_limit
  std::optional<AcrossHosts> across{};   ///< by NCCL: `rank` and `size` are those within the host
};

/// By NCCL. Throws the errors of Communicator, and out of memory.
std::unique_ptr<Mover> nccl_mover(std::shared_ptr<Gpu> gpu, Communicator& communicator,
                                  MoverFacts facts);
/// Through pinned host memory, by runs of `host` over `groups`, one per segment. `gpu`: nullptr on
/// a rank that has joined and never had a GPU tensor.
std::unique_ptr<Mover> staged_mover(std::shared_ptr<Gpu> gpu, Backend& host, GroupLevels& groups,
                                    MoverFacts facts);

/// The parts of a batch in the order of their runs, see Batch::Part.
enum class PartOfBatch : uint32_t { meeting, sizes, data };
inline constexpr uint32_t kPartsOfBatch = 3;
Batch::Part part_of(PartOfBatch part);
/// The parts of PartOfBatch::meeting, see gpu_group.h and ipc_meeting.h.
enum class MeetingPart : uint32_t { cards, memory, answers };
inline constexpr uint32_t kMeetingParts = 3;
Batch::Part part_of_meeting(MeetingPart part);
/// The part of one of `segments` runs that move the data `whole` of a batch.
Batch::Part part_of_segment(const Batch::Part& whole, size_t index, size_t segments);

/// Makes `stream` wait until all inputs and outputs may be used.
void wait_for_tensors(const Batch& batch, device::StreamHandle stream);

}  // namespace hvd::nccl
