// What a group of ranks has agreed about its tensors on GPUs, and its communicators. Made at the
// first batch of the group on GPUs; kept by its ranks, so a group with the same ranks uses it too.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "core/backend/backend.h"
#include "core/backend/nccl/communicator.h"
#include "core/backend/nccl/devices.h"
#include "core/backend/nccl/ipc_meeting.h"
#include "core/backend/nccl/ipc_rounds.h"
#include "core/backend/nccl/meeting.h"
#include "core/backend/nccl/segments.h"

namespace hvd::nccl {

/// The settings of the backend.
struct NcclOptions {
  GpuOperationsChoice choice = GpuOperationsChoice::automatic;
  bool encrypt = false;  ///< what leaves a host is encrypted
  bool async_completion = true;
  std::chrono::nanoseconds connect_timeout{};
  device::NcclPlaces places{};
  std::string host{};
  std::string visible{};                  ///< CUDA_VISIBLE_DEVICES; empty: not set
  bool may_share = false;                 ///< NCCL_MULTI_RANK_GPU_ENABLE=1
  std::chrono::nanoseconds slow_after{};  ///< when a warning says that a batch hangs; 0: never
  std::chrono::nanoseconds end_timeout = std::chrono::seconds(10);  ///< of an abort
  std::chrono::nanoseconds peer_timeout = std::chrono::seconds(30);
  bool exits_if_stuck = false;       ///< in elastic jobs
  bool allreduce_in_levels = false;  ///< if the group has levels
  bool deterministic = false;        ///< sums are added in the order of ranks
  // Limits of own buffers, equal on all ranks:
  size_t segment_bytes = kSegmentBytes;  ///< of staged batches
  size_t scratch_bytes = SIZE_MAX;       ///< of batches that NCCL moves
  /// Of memory that ranks share. Large, because the ranks exchange a message per place. Not
  /// measured.
  size_t ipc_place_bytes = size_t{8} << 20;
  size_t ipc_reduced_by_all_bytes = kReducedByAllBytes;
  IpcMemory::Rank ipc_ranks = IpcMemory::Rank::process;
};

/// For the holder of the progress token.
class GpuGroup {
 public:
  /// `ranks`: global, ascending. `ipc`: the memory of this process that others map; nullptr until
  /// a group makes it.
  GpuGroup(const NcclOptions& options, Devices& devices, std::shared_ptr<IpcMemory>& ipc,
           std::vector<int> ranks)
      : options_(options), devices_(devices), ipc_(ipc), ranks_(std::move(ranks)) {}

  /// Whether the ranks must meet() before they move data.
  bool must_meet() const {
    return options_.choice != GpuOperationsChoice::host && state_ != State::settled;
  }
  /// Starts the next exchange, a part of `batch`. After it is done, call take_decision().
  /// `gpu`: of the run, nullptr if this rank had none at its begin; it may have got one since.
  std::unique_ptr<Run> meet(Backend& host, GroupLevels& groups, const Batch& batch, const Gpu* gpu);
  /// Returns whether the ranks meet again at once. If not, but must_meet(), then at the next batch.
  /// Throws Error{invalid_argument} if the job cannot go on; the same on every rank.
  bool take_decision();

  const std::vector<int>& ranks() const { return ranks_; }
  /// Whether allreduces of `groups` run in levels, if NCCL moves them.
  bool in_levels(const GroupLevels& groups) const;
  /// Whether NCCL moves tensors of the group, as far as this rank knows.
  bool by_nccl() const { return decision_ && decision_->by_nccl; }
  /// The memory that all ranks have mapped; nullptr: they share none.
  std::shared_ptr<IpcMemory> shared_memory() const { return shares_memory_ ? ipc_ : nullptr; }
  /// Between which ranks a communicator is.
  enum class Level : unsigned char { all, host };
  bool is_connected(Level level) const { return connection(level).is_settled; }
  /// Begins to connect at the first call. Returns nullptr while it is in progress. Throws the
  /// errors of Communicator. Requires by_nccl() and the context; `host`: groups with levels.
  Communicator* connected(Level level, const GroupLevels& groups);
  /// Returns the handles of the communicators that were made.
  std::vector<device::CommHandle> handles() const;

 private:
  struct Connection {
    std::unique_ptr<Communicator> communicator{};
    bool is_settled = false;
  };
  Connection& connection(Level level) { return level == Level::all ? all_ : host_; }
  const Connection& connection(Level level) const { return level == Level::all ? all_ : host_; }
  Communicator::Options options_for(Level level, const GroupLevels& groups) const;
  Card own_card(const GroupLevels& groups, const Gpu* gpu);
  std::unique_ptr<Run> exchange_cards(Backend& host, GroupLevels& groups, const Batch& batch,
                                      const Gpu* gpu);
  bool decide_by_cards();
  void decide_by_answers();
  void report(hvd::Mover mover) const;

  enum class State : unsigned char { cards, memory, settled };  ///< which exchange is next

  const NcclOptions& options_;
  Devices& devices_;
  std::shared_ptr<IpcMemory>& ipc_;
  const std::vector<int> ranks_;
  State state_ = State::cards;
  int rank_ = 0;  ///< within the group
  Card own_{};
  std::optional<device::UniqueId> id_, host_id_;  ///< made by the first rank of each level
  std::vector<Card> cards_;
  std::optional<Decision> decision_;
  std::vector<IpcAnswer> answers_;
  bool shares_memory_ = false;
  Connection all_, host_;
};

}  // namespace hvd::nccl
