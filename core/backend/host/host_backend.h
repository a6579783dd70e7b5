// The backend for host memory: every Transfer as a Schedule and a Layout for the one Executor.
#pragma once

#include "core/backend/backend.h"
#include "core/base/knobs.h"

namespace hvd {

class HostBackend final : public Backend {
 public:
  /// `algorithm` overrides the choice for allreduce; agreed, so equal on all ranks.
  explicit HostBackend(AlgorithmChoice algorithm) : algorithm_(algorithm) {}

  std::string_view name() const override { return "host"; }
  std::unique_ptr<Run> start(GroupLevels& groups, Batch batch) override;

 private:
  AlgorithmChoice algorithm_;
};

}  // namespace hvd
