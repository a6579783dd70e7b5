// A cache of plans, since training repeats nearly all operations.
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

/// The parameters of a pass.
struct PassKind {
  OperationKind kind = OperationKind::allreduce;
  AllreduceRules rules{};  ///< allreduce
  int root = 0;            ///< broadcast: rank within the group
  bool operator==(const PassKind&) const = default;
};

/// The bytes of every block that a pass moves. Allreduce and broadcast have one block.
using Blocks = SmallVector<size_t, 4>;

GroupFacts facts_of(const Group& group);
/// Splits `bytes` into segments, and each segment into the chunks of `schedule`.
Layout split_for(const Group& group, const Schedule& schedule, size_t bytes, DType dtype);
/// Lays out `blocks` as the chunks of `schedule`.
Layout blocks_for(const Group& group, const Schedule& schedule, std::span<const size_t> blocks,
                  DType dtype);

class Carrier;

/// Owned and used by one thread.
class Plans {
 public:
  /// `carrier`: performs passes without a plan; nullptr: all passes need a plan.
  explicit Plans(Carrier* carrier = nullptr) : carrier_(carrier) {}

  Carrier* carrier() const { return carrier_; }
  /// Returns the plan of a pass. Ranks with equal arguments get consistent plans.
  std::shared_ptr<const Plan> plan_of(const PassKind& kind, const Group& group, DType dtype,
                                      const Blocks& blocks);

 private:
  static constexpr size_t kMostKept = 32;
  static constexpr size_t kMostBlocks = 256;  ///< of a cached plan; an alltoall has size^2

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
  size_t oldest_ = 0;  ///< replaced next if the cache is full
};

}  // namespace hvd
