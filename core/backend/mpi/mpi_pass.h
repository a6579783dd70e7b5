// One pass of a batch as calls of MPI. What lies in one piece MPI reads and writes where it is;
// what does not is put together first, and taken apart afterwards. What is larger than one call may
// be goes in several rounds, of which each moves the next stretch of every block.
//
// In which order MPI adds up, and what its partial sums stand for, is its own affair. So an average
// is a sum that is divided in the end, and one of a half type travels as float32, in which partial
// sums neither overflow nor are rounded much.
#pragma once

#include <cstddef>
#include <vector>

#include "core/backend/backend.h"
#include "core/backend/mpi/mpi_carrier.h"
#include "core/base/aligned_buffer.h"
#include "core/collective/layout.h"
#include "core/kernel/kernel.h"

namespace hvd::mpi {

/// Owned and driven by one thread. The carrier, the group and the memory of the work outlive it.
class MpiPass final : public Run {
 public:
  MpiPass(MpiCarrier& carrier, const Group& group, const PassKind& kind, const Blocks& blocks,
          Work work);
  /// With a call under way: MPI may still write to what it was given, so it is abandoned.
  ~MpiPass() override;

  Progress advance() override;

 private:
  /// What goes one way: the stretches of the virtual buffer that go to the ranks or come from
  /// them, all of them and what this round moves. MPI sees these end to end.
  struct Side {
    std::vector<Extent> whole{};  ///< one for all ranks, or one a rank
    std::vector<Extent> now{};
    std::vector<int> counts{}, displacements{};  ///< of `now`; elements of reductions, else bytes
    size_t bytes = 0;                            ///< of `now`, as tensors have them
    std::byte* data = nullptr;                   ///< what MPI is given
    bool packed = false;                         ///< not the memory of the tensors
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
  const bool widens_;  ///< elements of a half type travel as float32
  Side sent_, received_;
  size_t stretch_ = 0;  ///< of each block in a round
  size_t rounds_ = 0;
  size_t round_ = 0;
  Handle request_ = 0;
  bool under_way_ = false;
};

}  // namespace hvd::mpi
