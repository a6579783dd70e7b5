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

/// Starts a batch in which no output shares memory with another tensor.
std::unique_ptr<Run> HostBackend::start_apart(GroupLevels& groups, Batch batch) {
  if (short_cut_ != nullptr && batch.part.count == 1) {  // its ways number units from 0
    if (auto run = short_cut_->start(*this, groups, batch)) return run;
  }
  Group& all = *groups.all;
  switch (batch.operation.kind) {
    case OperationKind::allreduce:
      return start_allreduce(groups, batch);
    case OperationKind::allgather:
      return allgather_run(plans_, groups, std::move(batch),
                           rules_.allgather_in_levels && groups.across);
    case OperationKind::broadcast:
      return broadcast_run(plans_, all, batch);
    case OperationKind::alltoall:
      return alltoall_run(plans_, all, std::move(batch));
    case OperationKind::reducescatter:
      return reducescatter_run(plans_, all, batch);
    default:
      break;
  }
  HVD_ASSERT(false);
}

std::unique_ptr<Run> HostBackend::start_allreduce(GroupLevels& groups, const Batch& batch) {
  if (combines_by_adasum(groups, batch.operation.op)) return adasum_run(plans_, *groups.all, batch);
  if (reduces_in_levels(groups))
    return allreduce_in_levels(plans_, groups, batch, rules_.allreduce);
  return allreduce_run(plans_, *groups.all, batch, rules_.allreduce);
}

bool HostBackend::reduces_in_levels(const GroupLevels& groups) const {
  return rules_.allreduce_in_levels && groups.across;
}

std::shared_ptr<const Plan> HostBackend::plan_of(const GroupLevels& groups,
                                                 const Operation& operation, size_t bytes) {
  if (plans_.carrier() != nullptr) return nullptr;
  PassKind kind{.kind = operation.kind};
  if (operation.kind == OperationKind::allreduce) {
    if (combines_by_adasum(groups, operation.op) || reduces_in_levels(groups)) return nullptr;
    kind.rules = rules_.allreduce;
  } else if (operation.kind == OperationKind::broadcast) {
    kind.root = operation.root;
  } else {
    return nullptr;
  }
  return plans_.plan_of(kind, *groups.all, operation.dtype, {bytes});
}

}  // namespace hvd
