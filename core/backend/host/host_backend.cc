#include "core/backend/host/host_backend.h"

#include <utility>

#include "core/backend/host/private_outputs.h"
#include "core/backend/host/runs.h"
#include "core/base/assert.h"

namespace hvd {
namespace {

bool combines_by_adasum(const GroupLevels& groups, ReduceOp op) {
  return op == ReduceOp::adasum && groups.all->size() > 1;
}

}  // namespace

HostRules host_rules(const Knobs& knobs) {
  const bool levels = knobs.hierarchical_allreduce || knobs.torus_allreduce;
  return {.allreduce = {.choice = knobs.allreduce_algorithm, .deterministic = knobs.deterministic},
          .allreduce_in_levels = levels && !knobs.deterministic,
          .allgather_in_levels = knobs.hierarchical_allgather};
}

std::unique_ptr<Run> HostBackend::start(GroupLevels& groups, Batch batch) {
  const int rank = groups.all->rank(), size = groups.all->size();
  const std::vector<size_t> overlapping = overlaps_.find(batch, rank, size);
  if (overlapping.empty()) return start_apart(groups, std::move(batch));
  PrivateOutputs outputs(batch, overlapping, rank, size);
  return run_with(std::move(outputs), start_apart(groups, std::move(batch)));
}

/// No output shares memory with another tensor of the batch.
std::unique_ptr<Run> HostBackend::start_apart(GroupLevels& groups, Batch batch) {
  Group& all = *groups.all;
  switch (batch.transfer) {
    case Transfer::allreduce:
      return start_allreduce(groups, batch);
    case Transfer::allgather:
      return allgather_run(plans_, groups, std::move(batch),
                           rules_.allgather_in_levels && groups.across);
    case Transfer::broadcast:
      return broadcast_run(plans_, all, batch);
    case Transfer::alltoall:
      return alltoall_run(plans_, all, std::move(batch));
    case Transfer::reducescatter:
      return reducescatter_run(plans_, all, batch);
  }
  HVD_ASSERT(false);
}

std::unique_ptr<Run> HostBackend::start_allreduce(GroupLevels& groups, const Batch& batch) {
  if (combines_by_adasum(groups, batch.op)) return adasum_run(plans_, *groups.all, batch);
  if (reduces_in_levels(groups))
    return allreduce_in_levels(plans_, groups, batch, rules_.allreduce);
  return allreduce_run(plans_, *groups.all, batch, rules_.allreduce);
}

bool HostBackend::reduces_in_levels(const GroupLevels& groups) const {
  return rules_.allreduce_in_levels && groups.across;
}

std::shared_ptr<const Plan> HostBackend::plan_of(const GroupLevels& groups, const EagerTask& task) {
  if (plans_.carrier() != nullptr) return nullptr;
  PassKind kind{.transfer = task.transfer};
  if (task.transfer == Transfer::allreduce) {
    if (combines_by_adasum(groups, task.op) || reduces_in_levels(groups)) return nullptr;
    kind.rules = rules_.allreduce;
  } else if (task.transfer == Transfer::broadcast) {
    kind.root = task.root;
  } else {
    return nullptr;
  }
  return plans_.plan_of(kind, *groups.all, task.dtype, {task.bytes()});
}

}  // namespace hvd
