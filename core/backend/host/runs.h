// The runs of the host backend: how each Transfer becomes passes of the Executor. Chosen by
// HostBackend from agreed facts alone. The Plans outlive them.
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
/// Three passes: each rank of a host reduces a part, reduces that across hosts, and hands it to its
/// neighbours. All hosts have equally many ranks, so that the mean of their means is that of all.
std::unique_ptr<Run> allreduce_in_levels(Plans& plans, GroupLevels& groups, const Batch& batch,
                                         const AllreduceRules& rules);
/// Each tensor is combined by the rule of core/collective/adasum.h, whatever else is in the batch.
/// The size of the group is a power of two. Vector halving and doubling, so that a rank sends about
/// as much as in a ring: at each level a pair swaps the halves of what both hold, all ranks that
/// share the two vectors add up their products, and each combines its half; at the end everybody
/// gathers all stretches. Needs half as much memory again as the batch.
std::unique_ptr<Run> adasum_run(Plans& plans, Group& group, const Batch& batch);
std::unique_ptr<Run> reducescatter_run(Plans& plans, Group& group, const Batch& batch);
std::unique_ptr<Run> broadcast_run(Plans& plans, Group& group, const Batch& batch);
/// Unless the outputs are there, a pass before tells everybody how many rows the others have.
/// With levels first across hosts, then within each.
std::unique_ptr<Run> allgather_run(Plans& plans, GroupLevels& groups, Batch batch, bool in_levels);
/// Unless the outputs are there, a pass before tells everybody who sends how many rows to whom.
std::unique_ptr<Run> alltoall_run(Plans& plans, Group& group, Batch batch);

/// How contributions are combined: what `op` asks of the kernel, and what is done to the result in
/// the end. Floating types are averaged at every merge; integers are added up, and the sum is
/// divided.
struct Combination {
  ReduceOp op = ReduceOp::sum;
  kernel::Scaling after{};
};
/// Over `size` ranks.
Combination combination_of(ReduceOp op, DType dtype, double postscale, int size);

}  // namespace hvd
