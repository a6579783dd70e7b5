// The plans of passes, kept for when an operation comes again, as in training nearly all do.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "core/backend/backend.h"
#include "core/base/dtype.h"
#include "core/base/small_vector.h"
#include "core/collective/plan.h"
#include "core/collective/selector.h"
#include "core/group/group.h"

namespace hvd {

/// What a pass does.
struct PassKind {
  Transfer transfer = Transfer::allreduce;
  AllreduceRules rules{};  ///< allreduce
  int root = 0;            ///< broadcast: rank within the group
  bool operator==(const PassKind&) const = default;
};

/// Bytes of every block that a pass moves; of allreduce and broadcast, one for all.
using Blocks = SmallVector<size_t, 4>;

GroupFacts facts_of(const Group& group);
/// `schedule` over segments of all `bytes`, each cut into its chunks.
Layout split_for(const Group& group, const Schedule& schedule, size_t bytes, DType dtype);
/// `schedule` over blocks, of which chunk i is one.
Layout blocks_for(const Group& group, const Schedule& schedule, std::span<const size_t> blocks,
                  DType dtype);

class Carrier;

/// Owned and used by one thread.
class Plans {
 public:
  /// `carrier`: who takes the passes that need no plan of ours; none where all of them do.
  explicit Plans(Carrier* carrier = nullptr) : carrier_(carrier) {}

  Carrier* carrier() const { return carrier_; }
  /// The same on all ranks, as far as the arguments are.
  std::shared_ptr<const Plan> plan_of(const PassKind& kind, const Group& group, DType dtype,
                                      const Blocks& blocks);

 private:
  static constexpr size_t kMostKept = 32;
  static constexpr size_t kMostBlocks = 256;  ///< of a plan that is kept; alltoall has size^2

  struct Kept {
    PassKind kind;
    GroupFacts group;
    size_t unit_bytes = 0;
    size_t element_bytes = 0;
    Blocks blocks;
    std::shared_ptr<const Plan> plan;
  };
  const Kept* find(const Kept& wanted) const;

  Carrier* carrier_;
  std::vector<Kept> kept_;
  size_t oldest_ = 0;  ///< to be replaced once there are kMostKept
};

}  // namespace hvd
