// The one loop that moves tensor bytes. It takes a Plan and the tensors of a batch, and goes
// through them segment by segment and phase by phase in a fixed order that every rank of the group
// derives alike. advance() moves at most one segment and returns, so that agreement goes on while
// bytes move.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/dtype.h"
#include "core/base/small_vector.h"
#include "core/collective/gather_list.h"
#include "core/collective/plan.h"
#include "core/collective/wavefront.h"
#include "core/group/group.h"
#include "core/kernel/kernel.h"

namespace hvd {

/// What a pass of a batch does with its bytes. Input and output address the same virtual buffer
/// (the tensors of the batch end to end); for an in-place operation they are the same memory. Apart
/// from that, what is written shares memory with nothing else in the two lists (overlap.h).
/// Either may have absent stretches (GatherList::add_absent): chunks that this rank neither sends
/// nor reduces need no input, chunks whose result it does not want need no output. Every piece
/// holds whole elements.
///
/// A chunk is read from the input until the first receive changes it here, and from the output
/// afterwards, so that nothing is copied before it is needed. Chunks that no receive changes are
/// copied to the output where both are there.
///
/// The prescale is applied as the input is read, the divisor and then the postscale by a chunk's
/// last reduce here, and all to a chunk that is copied. What replaces a chunk has been scaled by
/// the rank that reduced it.
///
/// An average of floating numbers is a mean all the way: what a rank passes on is the mean of the
/// contributions that it stands for, and what comes in is weighted by how many those are. So no
/// partial result is larger than the largest contribution, and the mean of equal ones is the same
/// again (docs/decisions, 29). Integers are added, and divided in the end.
struct Work {
  uint64_t batch = 0;       ///< Ticket::batch of every unit
  uint32_t first_unit = 0;  ///< where this pass goes on counting: the units of the passes before
  std::shared_ptr<const Plan> plan;
  GatherList input;
  GatherList output;
  DType dtype = DType::uint8;
  ReduceOp op = ReduceOp::sum;  ///< average: of floating types only
  double prescale = 1.0;
  int divisor = 1;  ///< of a sum of integers that is to be an average
  double postscale = 1.0;

  kernel::Scaling scaling_after() const { return {.factor = postscale, .divisor = divisor}; }
};

/// Owned and driven by one thread. The Group and the memory of the tensors outlive it.
///
/// A unit is one (segment, phase). This rank publishes units in order and merges them in order; a
/// unit is merged after it is published, and published after the phase before it of the same
/// segment is merged. All ranks keep the same order, so that the oldest unit can always go on:
/// nobody waits in a circle. A publish copies what it sends into the group's room, so that a merge
/// of the same phase does not alter it. Where the group takes loans it lends instead, and a merge
/// waits until that is sent which it might alter. What replaces a chunk lands in the output at
/// once: it has been made from what this rank sent of that chunk, so that is not read any more.
class Executor {
 public:
  Executor(Group& group, Work work);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  enum class Progress : uint8_t { moved, waiting, done };
  /// Does what can be done now, at most about one segment's worth. Errors come from the Group
  /// (peer_lost). When `done`, the results are here and peers can get what they need from the room
  /// of the Group; over links some of it may still have to be pumped.
  Progress advance();

  /// Of this pass, on every rank of the group.
  uint32_t units() const { return static_cast<uint32_t>(to_publish_.units()); }

  /// What advance() is waiting for, in words, for reports: "unit 7 (segment 2, phase 1) of rank 3".
  std::string waiting_for() const;

 private:
  /// What peers sent, in ascending order of rank, the place of this rank's own among them, and of
  /// an average how many contributions each stands for.
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
  const Plan& plan_;            // the Work's
  SmallVector<int, 4> copied_;  // chunks that go from the input to the output
  Wavefront to_publish_;
  Wavefront to_merge_;
  const kernel::Scaling scaling_after_;
  const size_t most_ahead_;
  bool lends_ = false;    // units are sent from where they lie
  bool streams_ = false;  // copies to the output go past the caches
  Ticket last_published_;
  size_t settled_segments_ = 0;  // nothing is left to do for them
  // Of the unit to merge: the parcels that have been seen so far.
  SmallVector<ConstBytes, 4> views_;
  // Kept for their capacity.
  SmallVector<Parcel, 4> parcels_;
  SmallVector<Loan, 4> loans_;
  SmallVector<ConstBytes, 8> pieces_;
  SmallVector<const void*, 4> sources_;
  std::vector<int> counts_;
};

}  // namespace hvd
