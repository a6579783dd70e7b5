// The runs of the host backend, which divide each operation into passes of the Executor.
// HostBackend chooses by facts that are equal on all ranks. The Plans must outlive the runs.
#pragma once

#include <memory>

#include "core/backend/backend.h"
#include "core/backend/host/plans.h"
#include "core/collective/selector.h"
#include "core/kernel/kernel.h"

namespace hvd {

/// One pass over the whole group.
std::unique_ptr<Run> allreduce_run(Plans& plans, Group& group, const Batch& batch,
                                   const AllreduceRules& rules);
/// Three passes: reducescatter within the host, allreduce across hosts, allgather within the host.
/// All hosts have the same number of ranks, so the mean of their means is the mean of all ranks.
std::unique_ptr<Run> allreduce_in_levels(Plans& plans, GroupLevels& groups, const Batch& batch,
                                         const AllreduceRules& rules);
/// Combines each tensor by the rule of core/collective/adasum.h, independent of the other tensors
/// of the batch. The group size is a power of two. Uses vector halving and doubling, so a rank
/// sends about as much as in a ring. At each level, the ranks of a pair exchange halves, all ranks
/// that share the two vectors sum their products, and each rank combines its half. Finally all
/// ranks gather all stretches. Allocates half the size of the batch.
std::unique_ptr<Run> adasum_run(Plans& plans, Group& group, const Batch& batch);
std::unique_ptr<Run> reducescatter_run(Plans& plans, Group& group, const Batch& batch);
std::unique_ptr<Run> broadcast_run(Plans& plans, Group& group, const Batch& batch);
/// A first pass exchanges the row counts unless the caller provides outputs. In levels: first
/// across hosts, then within each host.
std::unique_ptr<Run> allgather_run(Plans& plans, GroupLevels& groups, Batch batch, bool in_levels);
/// A first pass exchanges the row counts unless the caller provides outputs.
std::unique_ptr<Run> alltoall_run(Plans& plans, Group& group, Batch batch);

/// How contributions are combined: the operation of the kernel and the scaling of the result.
/// Floating-point types are averaged at every merge. Integers are summed, and the sum is divided.
struct Combination {
  ReduceOp op = ReduceOp::sum;
  kernel::Scaling after{};
};
/// The combination for `op` over `size` ranks.
Combination combination_of(ReduceOp op, DType dtype, double postscale, int size);

}  // namespace hvd
