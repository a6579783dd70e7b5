// Replaces the Executor for the passes of the host backend, e.g. by a library of collectives. The
// runs of the host backend describe each pass, and a Carrier performs it. Owned by the Context and
// shared by all groups of a job.
#pragma once

#include <memory>
#include <vector>

#include "core/backend/backend.h"
#include "core/backend/host/plans.h"
#include "core/collective/executor.h"
#include "core/group/group.h"

namespace hvd {

/// Only the holder of the progress token may call enter() and start().
class Carrier {
 public:
  virtual ~Carrier() = default;
  /// Announces the group of these global ranks (ascending). Its address may be that of a former
  /// group.
  virtual void enter(const Group& group, const std::vector<int>& ranks) = 0;
  /// Prepares a pass of `kind` over `blocks` on a group that has been entered. The pass starts with
  /// the first advance() of the Run. `work` has no plan. The memory listed in it must outlive the
  /// Run.
  virtual std::unique_ptr<Run> start(const Group& group, const PassKind& kind, const Blocks& blocks,
                                     Work work) = 0;
};

}  // namespace hvd
