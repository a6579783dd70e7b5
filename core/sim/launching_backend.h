// A backend whose runs end like those of a device. Another backend moves the data. Then the run is
// launched, and is done after a random number of polls. So later batches start, and often end,
// before it.
#pragma once

#include <memory>
#include <random>
#include <utility>

#include "core/backend/backend.h"

namespace hvd::sim {

class LaunchingBackend final : public Backend {
 public:
  LaunchingBackend(std::unique_ptr<Backend> mover, uint64_t seed)
      : mover_(std::move(mover)), random_(seed) {}

  std::string_view name() const override { return "launching"; }
  std::unique_ptr<Run> start(GroupLevels& groups, Batch batch) override;
  bool uses_levels() const override { return mover_->uses_levels(); }

 private:
  std::unique_ptr<Backend> mover_;
  std::mt19937_64 random_;
};

}  // namespace hvd::sim
