// Performs passes by nonblocking collectives of MPI, through the function table of a plugin. Each
// group has a communicator, which the thread that creates the group makes beforehand and which may
// block. The progress engine only starts and tests operations. Owned by the Context.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/backend/host/carrier.h"
#include "core/backend/mpi/plugin.h"
#include "core/base/aligned_buffer.h"

namespace hvd::mpi {

/// The most bytes per call of MPI; counts of MPI have type int.
inline constexpr size_t kMostBytesOfCall = 1 * GiB;

class MpiCarrier final : public Carrier {
 public:
  /// `mpi_ranks`: [rank of the job] the rank in MPI_COMM_WORLD. MPI must be initialized.
  /// `most_bytes_of_call`: smaller in tests.
  MpiCarrier(const Table& table, std::vector<int> mpi_ranks,
             size_t most_bytes_of_call = kMostBytesOfCall);
  /// No pass may be in progress, unless abandon() was called.
  ~MpiCarrier() override;

  /// Makes the communicator of `ranks` (global, ascending), which include this rank. Collective
  /// over them. Blocks, so the progress engine must not call it. Communicators that share ranks
  /// must be made in the same order on all ranks. Throws Error{internal}.
  void make_communicator(const std::vector<int>& ranks);
  /// Frees the communicator of `ranks`. No pass on it may be left.
  void free_communicator(const std::vector<int>& ranks);
  /// Called after the loss of a rank. This process will not call MPI again, also not in later jobs.
  void abandon() { table_.abandon(); }

  void enter(const Group& group, const std::vector<int>& ranks) override;
  bool has_entered(const Group& group) const { return groups_.contains(&group); }
  /// A group that has not been entered may have the address of a former one that has.
  void forget(const Group& group) { groups_.erase(&group); }
  std::unique_ptr<Run> start(const Group& group, const PassKind& kind, const Blocks& blocks,
                             Work work) override;

  // ---- for its passes

  const Table& table() const { return table_; }
  size_t most_bytes_of_call() const { return most_bytes_of_call_; }
  /// Returns nullopt until make_communicator() has returned. Other ranks may be ahead.
  std::optional<Handle> communicator_of(const Group& group);
  /// Throws Error{internal} unless `error` is 0.
  void require(int error, std::string_view call) const;
  /// Returns a buffer of at least `bytes`, to be returned by give_back().
  AlignedBuffer take_room(size_t bytes);
  void give_back(AlignedBuffer room);

 private:
  const Table& table_;
  const std::vector<int> mpi_ranks_;
  const size_t most_bytes_of_call_;
  std::map<const Group*, std::vector<int>> groups_;
  std::vector<AlignedBuffer> rooms_;  ///< unused buffers

  std::mutex mutex_;
  std::map<std::vector<int>, Handle> communicators_;  ///< under mutex_
};

}  // namespace hvd::mpi
