// The backend for host memory by MPI: the runs of a HostBackend, with passes by an MpiCarrier.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "core/backend/host/host_backend.h"
#include "core/backend/mpi/mpi_carrier.h"

namespace hvd::mpi {

class MpiBackend final : public Backend {
 public:
  MpiBackend(const HostRules& rules, std::unique_ptr<MpiCarrier> carrier)
      : carrier_(std::move(carrier)), host_(rules, carrier_.get()), pairs_(rules) {}

  std::string_view name() const override { return "mpi"; }
  std::unique_ptr<Run> start(GroupLevels& groups, Batch batch) override {
    HostBackend& backend = carrier_->has_entered(*groups.all) ? host_ : pairs_;
    return backend.start(groups, std::move(batch));
  }
  void enter(const GroupLevels& groups, const std::vector<int>& ranks) override {
    carrier_->enter(*groups.all, ranks);
  }
  /// Messages use the connections of the runtime, not a communicator for each two ranks.
  void enter_pair(const GroupLevels& groups, const std::vector<int>& /*ranks*/) override {
    carrier_->forget(*groups.all);
  }
  /// Passes go over all ranks of a group.
  bool uses_levels() const override { return false; }
  /// MPI does not notify the engine.
  std::optional<std::chrono::nanoseconds> poll_interval() const override {
    return std::chrono::nanoseconds(0);
  }

  void make_group(const std::vector<int>& ranks) override { carrier_->make_communicator(ranks); }
  void free_group(const std::vector<int>& ranks) override { carrier_->free_communicator(ranks); }
  void abandon() override { carrier_->abandon(); }

 private:
  std::unique_ptr<MpiCarrier> carrier_;
  HostBackend host_;
  HostBackend pairs_;  ///< for groups that MPI does not know
};

}  // namespace hvd::mpi
