// The loop that moves all tensor data. It takes a Plan and the tensors of a batch and processes
// them segment by segment and phase by phase, in a fixed order that all ranks of the group derive
// independently. advance() moves at most one segment and returns, so that negotiation continues
// during transfers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/dtype.h"
#include "core/base/progress.h"
#include "core/base/small_vector.h"
#include "core/collective/gather_list.h"
#include "core/collective/plan.h"
#include "core/collective/wavefront.h"
#include "core/group/group.h"
#include "core/kernel/kernel.h"

namespace hvd {

/// The description of one pass of a batch. Input and output address the same virtual buffer (the
/// concatenated tensors of the batch); for an in-place operation they are the same memory.
/// Otherwise the output must not overlap any other memory in the two lists (overlap.h). Both lists
/// may have absent ranges (GatherList::add_absent): chunks that this rank neither sends nor reduces
/// need no input, and chunks whose result it does not need have no output. Every piece holds whole
/// elements.
///
/// A chunk is read from the input until the first receive changes it on this rank, and from the
/// output afterwards, so that no data is copied early. Chunks that no receive changes are copied to
/// the output if both are present.
///
/// The prescale is applied when the input is read. The divisor and then the postscale are applied
/// by a chunk's last reduce on this rank; a copied chunk gets all three. Data that replaces a chunk
/// has been scaled by the rank that reduced it.
///
/// An average of floating-point numbers is a mean at every step: a rank sends the mean of the
/// contributions that it has combined, and received means are weighted by their number of
/// contributions. So no partial result is larger than the largest contribution, and the mean of
/// equal numbers is exactly that number (docs/decisions/0029). Integers are added and divided at
/// the end.
struct Work {
  uint64_t batch = 0;       ///< Ticket::batch of every unit
  uint32_t first_unit = 0;  ///< first unit of this pass: the number of units of the previous passes
  std::shared_ptr<const Plan> plan;
  GatherList input;
  GatherList output;
  DType dtype = DType::uint8;
  ReduceOp op = ReduceOp::sum;  ///< average: floating types only
  double prescale = 1.0;
  int divisor = 1;  ///< for an average of integers, which is computed as a sum
  double postscale = 1.0;

  kernel::Scaling scaling_after() const { return {.factor = postscale, .divisor = divisor}; }
};

/// Owned and used by one thread. The Group and the memory of the tensors must outlive it.
///
/// A unit is one (segment, phase). This rank publishes units in order and merges them in order. A
/// unit is merged after it is published, and published after the previous phase of the same segment
/// is merged. All ranks use the same order, so the oldest unit can always progress and no deadlock
/// is possible. By default, a publish copies the data into the group's buffer, so that a merge of
/// the same phase does not change it. If the group supports zero-copy sends, units are sent from
/// the tensors, and a merge waits until all data that it would change has been sent. Data that
/// replaces a chunk is received directly into the output: it was computed from this rank's part of
/// the chunk, so that part is not read any more.
class Executor {
 public:
  Executor(Group& group, Work work);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Makes progress, at most about one segment's worth. Errors come from the Group (peer_lost). At
  /// `done`, the results are complete here and the rest that peers need is in the Group's buffers;
  /// over links it may still have to be pumped.
  Progress advance();

  /// Number of units of this pass, equal on every rank of the group.
  uint32_t units() const { return static_cast<uint32_t>(to_publish_.units()); }

  /// Describes what advance() is waiting for, for reports: "unit 7 (segment 2, phase 1) of batch 4
  /// from rank 3".
  std::string waiting_for() const;

 private:
  /// The data from peers, in ascending order of rank, the position of this rank's own data among
  /// them, and for an average the number of contributions of each.
  struct Operands {
    std::span<const ConstBytes> contents;
    size_t own_place = 0;
    std::span<const int> counts{};
  };

  void find_copied();
  bool can_lend() const;
  bool outgrows_caches() const;
  bool finished() const;
  bool try_publish();
  bool pack(size_t room_bytes, int base);
  bool collect_loans();
  void await_landings();
  MutableBytes place_of(ChunkRange range, size_t segment, size_t bytes) const;
  bool is_drained() const;
  Progress drain();
  bool try_merge();
  bool see_parcels();
  void merge(const Phase& phase, size_t segment);
  void replace(const Receive& receive, size_t segment, ConstBytes content);
  void reduce(std::span<const Receive> receives, size_t segment,
              std::span<const ConstBytes> contents);
  const std::byte* packed_next(int chunk, size_t bytes) const;
  Operands operands_of(std::span<const Receive> receives, std::span<const ConstBytes> contents);
  void reduce_chunk(const GatherList& own, Extent extent, const Operands& operands, size_t begin,
                    const kernel::ReduceOptions& options);
  void scale(const GatherList& from, Extent extent, const kernel::Scaling& scaling);
  void copy(std::byte* to, const std::byte* from, size_t bytes) const;
  void copy_unchanged();
  Ticket ticket(const Wavefront& unit) const;
  Parcel parcel(int peer, ChunkRange range, int base, size_t segment) const;

  Group& group_;
  Work work_;
  const Plan& plan_;            // owned by work_
  SmallVector<int, 4> copied_;  // chunks that are copied from input to output
  Wavefront to_publish_;
  Wavefront to_merge_;
  const kernel::Scaling scaling_after_;
  const size_t most_ahead_;
  bool lends_ = false;    // units are sent from the tensors (zero-copy)
  bool streams_ = false;  // copies to the output use non-temporal stores
  Ticket last_published_;
  size_t settled_segments_ = 0;  // segments that are complete
  // The parcels of the unit to merge that have been received so far.
  SmallVector<ConstBytes, 4> views_;
  // Members to reuse their capacity.
  SmallVector<Parcel, 4> parcels_;
  SmallVector<Loan, 4> loans_;
  SmallVector<ConstBytes, 8> pieces_;
  SmallVector<const void*, 4> sources_;
  std::vector<int> counts_;
};

}  // namespace hvd
