// A run as a sequence of passes. Each pass is one Work of the Executor on one group. Owned by the
// Run.
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

/// Runs the passes in the order in which they are added. Owned and driven by one thread. The groups
/// and the memory of the tensors must outlive it.
///
/// Pass i numbers its units from i * (units of a part) / `most_passes`, not from the end of the
/// previous pass. The ranks of a pass may have run that one on different groups, with different
/// numbers of units.
class PassSequence {
 public:
  /// All ranks add the same number of passes, at most `most_passes`.
  PassSequence(const Batch& batch, uint32_t most_passes);

  /// Adds a pass. All ranks add passes in the same order, also passes without data of this rank.
  /// `work` needs neither `batch` nor `first_unit`.
  void add(Group& group, Work work);
  /// Adds a pass that a Carrier can perform. `work` does not need a plan.
  void add(Plans& plans, Group& group, const PassKind& kind, const Blocks& blocks, Work work);

  /// Moves about one segment. Returns `done` when all passes added are complete. Throws
  /// Error{peer_lost}.
  Progress advance();
  /// The route of the current pass; between passes, of the next one.
  Route route() const;

 private:
  struct Pass {
    Group* group = nullptr;
    Work work{};
    Algorithm algorithm = Algorithm::none;
    std::unique_ptr<Run> carried{};  ///< the Run of a Carrier, instead of `work`
  };
  bool all_started() const { return started_ == passes_.size(); }
  void start_next();
  Progress advance_current();

  uint64_t batch_;
  uint32_t units_apart_;
  uint32_t first_unit_;
  SmallVector<Pass, 1> passes_;
  size_t started_ = 0;
  uint32_t units_of_last_ = 0;
  std::optional<Executor> executor_;  ///< of the current pass, or
  Run* carried_ = nullptr;            ///< the Run of a Carrier for it
};

/// Returns a list of `block_bytes` in which only block `present` has memory, that of `memory`.
GatherList only_block(std::span<const size_t> block_bytes, size_t present,
                      const GatherList& memory);

/// Adds an allgather. `blocks[i]`: destination of the block of rank i. `input`: block of this rank.
void add_gather(PassSequence& passes, Plans& plans, Group& group,
                const std::vector<GatherList>& blocks, const GatherList& input, DType dtype);

}  // namespace hvd
