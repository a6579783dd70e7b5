// One pass of a batch as calls of MPI. MPI reads and writes contiguous data in place. Other data is
// packed before and unpacked after the call. A pass that exceeds the limit of a call takes several
// rounds, each with the next stretch of every block.
//
// MPI chooses the order of additions and the partial sums. So an average is computed as a sum that
// is divided at the end. An average of a half type uses float32 on the wire, in which partial sums
// do not overflow and lose little precision.
#pragma once

#include <cstddef>
#include <vector>

#include "core/backend/backend.h"
#include "core/backend/mpi/mpi_carrier.h"
#include "core/base/aligned_buffer.h"
#include "core/collective/layout.h"
#include "core/kernel/kernel.h"

namespace hvd::mpi {

/// Owned and driven by one thread. The carrier, the group and the memory of `work` must outlive it.
class MpiPass final : public Run {
 public:
  MpiPass(MpiCarrier& carrier, const Group& group, const PassKind& kind, const Blocks& blocks,
          Work work);
  /// If a call is in progress, abandons MPI and leaks the buffers: MPI may still access them.
  ~MpiPass() override;

  Progress advance() override;
  Route route() const override { return {.mover = Mover::mpi}; }

 private:
  /// One direction, send or receive: the stretches of the virtual buffer for the whole pass and for
  /// the current round. MPI sees the stretches of a round as contiguous.
  struct Side {
    std::vector<Extent> whole{};  ///< of the pass: one for all ranks, or one per rank
    std::vector<Extent> now{};    ///< of this round
    std::vector<int> counts{}, displacements{};  ///< of `now`; in elements if it reduces, or bytes
    size_t bytes = 0;                            ///< of `now`, in the dtype of the tensors
    std::byte* data = nullptr;                   ///< buffer for MPI
    bool packed = false;                         ///< `data` is not memory of the tensors
    AlignedBuffer room{};
  };

  void find_extents(const Blocks& blocks);
  void count_rounds(const Blocks& blocks);
  bool reduces() const;
  DType travels_as() const;
  size_t travelling(size_t bytes) const;
  kernel::Scaling scaling_after() const;

  void begin_round(Handle communicator);
  void cut(Side& side) const;
  void take_room_for(Side& side);
  void place_all();
  bool overlap() const;
  void pack();
  void pack_piece(std::byte* to, MutableBytes piece) const;
  void unpack_piece(MutableBytes piece, std::byte* from) const;
  int call(Handle communicator);
  const char* name_of_call() const;
  void finish_round();
  void unpack();
  void copy_own_broadcast();

  MpiCarrier& carrier_;
  const Group& group_;
  const PassKind kind_;
  const Work work_;
  const bool widens_;  ///< half types are converted to float32 for MPI
  Side sent_, received_;
  size_t stretch_ = 0;  ///< bytes of each block per round
  size_t rounds_ = 0;
  size_t round_ = 0;
  Handle request_ = 0;
  bool under_way_ = false;
};

}  // namespace hvd::mpi
