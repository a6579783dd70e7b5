// The backend for host memory. Runs every operation as a Schedule and a Layout on the Executor.
#pragma once

#include "core/backend/backend.h"
#include "core/backend/host/overlap.h"
#include "core/backend/host/plans.h"
#include "core/backend/host/short_cut.h"
#include "core/base/knobs.h"
#include "core/collective/selector.h"

namespace hvd {

/// The settings from the knobs for running operations. Equal on all ranks.
struct HostRules {
  AllreduceRules allreduce{};
  bool allreduce_in_levels = false;  ///< if the group has levels
  bool allgather_in_levels = false;  ///< if the group has levels
};
/// Disables allreduce in levels in deterministic mode, since its sums depend on the hosts.
HostRules host_rules(const Knobs& knobs);

/// Driven by one thread. Must outlive its Runs.
class HostBackend final : public Backend {
 public:
  /// `carrier`: moves the data instead of the Executor, except the sums of Adasum; must outlive the
  /// backend. `short_cut`: tried first for every batch.
  explicit HostBackend(const HostRules& rules, Carrier* carrier = nullptr,
                       std::unique_ptr<ShortCut> short_cut = nullptr)
      : rules_(rules), plans_(carrier), short_cut_(std::move(short_cut)) {}

  std::string_view name() const override { return "host"; }
  /// Tensors may share memory; private_outputs.h defines the result. Throws std::bad_alloc.
  std::unique_ptr<Run> start(GroupLevels& groups, Batch batch) override;
  bool uses_levels() const override {
    return rules_.allreduce_in_levels || rules_.allgather_in_levels;
  }

  /// Returns the plan of an allreduce or broadcast of `bytes` in total. Returns nullptr for other
  /// operations, if there is a Carrier, or if the operation takes more than one pass.
  std::shared_ptr<const Plan> plan_of(const GroupLevels& groups, const Operation& operation,
                                      size_t bytes);

 private:
  std::unique_ptr<Run> start_apart(GroupLevels& groups, Batch batch);
  std::unique_ptr<Run> start_allreduce(GroupLevels& groups, const Batch& batch);
  bool reduces_in_levels(const GroupLevels& groups) const;

  HostRules rules_;
  Plans plans_;
  std::unique_ptr<ShortCut> short_cut_;  ///< may be nullptr
  OverlapSearch overlaps_;
};

}  // namespace hvd
