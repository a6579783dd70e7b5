// A run as a row of passes: each is one Work of the Executor on one group. Owned by the Run.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/backend/backend.h"
#include "core/backend/host/plans.h"
#include "core/base/small_vector.h"
#include "core/collective/executor.h"
#include "core/group/group.h"

namespace hvd {

/// Runs what is added, one after the other. Owned and driven by one thread; the groups and the
/// memory of the tensors outlive it.
///
/// Pass i counts its units from i * (units of a batch) / `most_passes`, not from where the pass
/// before it ended: ranks that meet in this pass may come from passes on different groups, with
/// different numbers of units.
class Passes {
 public:
  /// For the batch of this Batch::sequence. All its ranks add equally many, at most `most_passes`.
  Passes(uint64_t batch, uint32_t most_passes);

  /// `work` needs neither `batch` nor `first_unit`. Added in the same order on all ranks, also
  /// where this one has nothing to move.
  void add(Group& group, Work work);
  /// The same for what a Carrier can take: `work` needs no plan either.
  void add(Plans& plans, Group& group, const PassKind& kind, const Blocks& blocks, Work work);

  /// Moves about one segment and returns; `done` when nothing is left of what was added. Throws
  /// Error{peer_lost}.
  Run::Progress advance();

 private:
  struct Pass {
    Group* group = nullptr;
    Work work{};
    std::unique_ptr<Run> carried{};  ///< instead of the work
  };
  bool all_started() const { return started_ == passes_.size(); }
  void start_next();
  Run::Progress advance_current();

  uint64_t batch_;
  uint32_t units_apart_;
  SmallVector<Pass, 1> passes_;
  size_t started_ = 0;
  uint32_t units_of_last_ = 0;
  std::optional<Executor> executor_;  ///< of the current pass ...
  Run* carried_ = nullptr;            ///< ... or who carries that
};

/// A list of `block_bytes` of which only the block `present` has memory: that of `memory`.
GatherList only_block(std::span<const size_t> block_bytes, size_t present,
                      const GatherList& memory);

/// Adds an allgather: `blocks[i]` is where that of rank i lies, `input` is this rank's.
void add_gather(Passes& passes, Plans& plans, Group& group, const std::vector<GatherList>& blocks,
                const GatherList& input, DType dtype);

}  // namespace hvd
