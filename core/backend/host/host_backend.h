// The backend for host memory: every Transfer as a Schedule and a Layout for the one Executor.
#pragma once

#include "core/backend/backend.h"
#include "core/backend/host/eager_task.h"
#include "core/backend/host/overlap.h"
#include "core/backend/host/plans.h"
#include "core/base/knobs.h"
#include "core/collective/selector.h"

namespace hvd {

/// What the knobs say about how operations run; agreed, so equal on all ranks.
struct HostRules {
  AllreduceRules allreduce{};
  /// Where a group has levels: which operations use them.
  bool allreduce_in_levels = false;
  bool allgather_in_levels = false;
};
/// Not allreduce in levels where the same bits are asked for, since its sums depend on the hosts.
HostRules host_rules(const Knobs& knobs);

/// Driven by one thread. Outlives its Runs.
class HostBackend final : public Backend {
 public:
  /// `carrier`: who moves the bytes instead of the Executor, and outlives the backend; Adasum's
  /// sums stay with the Executor.
  explicit HostBackend(const HostRules& rules, Carrier* carrier = nullptr)
      : rules_(rules), plans_(carrier) {}

  std::string_view name() const override { return "host"; }
  /// Tensors may share memory; see private_outputs.h for what is read and stored then. Throws
  /// std::bad_alloc.
  std::unique_ptr<Run> start(GroupLevels& groups, Batch batch) override;

  /// The plan for an allreduce or a broadcast, where that is one pass over all ranks and no Carrier
  /// takes it; else nullptr. For a PhasedLinkCall.
  std::shared_ptr<const Plan> plan_of(const GroupLevels& groups, const EagerTask& task);

 private:
  std::unique_ptr<Run> start_apart(GroupLevels& groups, Batch batch);
  std::unique_ptr<Run> start_allreduce(GroupLevels& groups, const Batch& batch);
  bool reduces_in_levels(const GroupLevels& groups) const;

  HostRules rules_;
  Plans plans_;
  OverlapSearch overlaps_;
};

}  // namespace hvd
