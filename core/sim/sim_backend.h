// The backend of simulated ranks: another one moves the data, and its runs are counted. They may
// end like those of a device: then a run is launched, and is done after a random number of polls.
// So later batches start, and often end, before it.
#pragma once

#include <memory>
#include <random>
#include <utility>

#include "core/backend/backend.h"

namespace hvd::sim {

struct SimBackendOptions {
  bool launches = false;
  uint64_t seed = 0;
};

class SimBackend final : public Backend {
 public:
  /// `moving`: the number of runs that move data. It must outlive the backend.
  SimBackend(std::unique_ptr<Backend> mover, int& moving, const SimBackendOptions& options)
      : mover_(std::move(mover)),
        moving_(moving),
        launches_(options.launches),
        random_(options.seed) {}

  std::string_view name() const override { return "sim"; }
  std::unique_ptr<Run> start(GroupLevels& groups, Batch batch) override;
  bool uses_levels() const override { return mover_->uses_levels(); }

 private:
  std::unique_ptr<Backend> mover_;
  int& moving_;
  const bool launches_;
  std::mt19937_64 random_;
};

}  // namespace hvd::sim
