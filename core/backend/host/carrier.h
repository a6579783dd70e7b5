// Another way than the Executor for the bytes of a pass, such as a library of collectives. The runs
// of the host backend stay what they are: they say what a pass does, a Carrier does it. Owned by
// the Context, and shared by all groups of a job.
#pragma once

#include <memory>
#include <vector>

#include "core/backend/backend.h"
#include "core/backend/host/plans.h"
#include "core/collective/executor.h"
#include "core/group/group.h"

namespace hvd {

/// enter() and start() are for the holder of the driver token.
class Carrier {
 public:
  virtual ~Carrier() = default;
  /// There is a group of these global ranks, ascending; it may be where one was that is no more.
  virtual void enter(const Group& group, const std::vector<int>& ranks) = 0;
  /// A pass of `kind` over the blocks, on a group that has been entered. Nothing happens before
  /// the first advance() of what is returned. `work` has no plan. The memory it lists outlives the
  /// Run.
  virtual std::unique_ptr<Run> start(const Group& group, const PassKind& kind, const Blocks& blocks,
                                     Work work) = 0;
};

}  // namespace hvd
