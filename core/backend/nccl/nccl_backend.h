// The backend for CUDA memory. NCCL moves the tensors if every rank of the group has it and a GPU
// of its own. Otherwise ranks of one host read each other's GPU memory, if they can
// (docs/decisions/0070). If not, and for operations that NCCL lacks, tensors are copied to pinned
// memory, and the host backend moves them there (docs/decisions/0056).
#pragma once

#include <array>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "core/backend/backend.h"
#include "core/backend/nccl/endings.h"
#include "core/backend/nccl/gpu_group.h"
#include "core/backend/nccl/mover.h"

namespace hvd::nccl {

class NcclBackend final : public Backend {
 public:
  /// `host` must outlive the backend.
  NcclBackend(NcclOptions options, Backend& host);
  /// Waits until device work has ended, see Endings.
  ~NcclBackend() override = default;

  std::string_view name() const override { return "nccl"; }
  std::unique_ptr<Run> start(GroupLevels& groups, Batch batch) override;
  void enter(const GroupLevels& groups, const std::vector<int>& ranks) override {
    ranks_.insert_or_assign(groups.all.get(), ranks);
  }
  void abandon() override;
  void end_device_work() override;
  bool has_ended_device_work() const override { return !endings_ || endings_->is_over(); }
  /// The GPU does not wake the engine. A run that has not changed for long is polled less often:
  /// the interval is an eighth of the time since the last change, at least 50 us and at most 1 ms.
  std::optional<std::chrono::nanoseconds> poll_interval() const override;
  OwnBuffers own_buffers() const override;
  std::shared_ptr<const DevicePoint> mark(int index, void* stream) override;

 private:
  class GpuRun;
  GpuGroup& group_of(const GroupLevels& groups);
  Remains take_remains();

  const NcclOptions options_;
  Backend& host_;
  Devices devices_;
  std::map<const Group*, std::vector<int>> ranks_;
  std::shared_ptr<IpcMemory> ipc_;
  std::map<std::vector<int>, GpuGroup> groups_;
  std::deque<const GpuRun*> launched_;  ///< they end in this order, so only the first is polled
  std::vector<std::unique_ptr<Mover>> cancelled_;  ///< whose work is still queued
  std::chrono::steady_clock::time_point last_change_{}, last_end_{};
  std::array<uint64_t, kMovers> batches_{};  ///< moved so far, for the log
  bool is_abandoned_ = false;
  std::unique_ptr<Endings> endings_;
};

}  // namespace hvd::nccl
