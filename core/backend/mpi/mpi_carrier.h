// Passes by the collectives of MPI, through the table of a plugin. Each group has a communicator,
// which whoever makes the group makes beforehand, on a thread that may block; the driver only
// begins operations and asks whether they are done. Owned by the Context.
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

/// What one call of MPI takes, whose counts are of type int.
inline constexpr size_t kMostBytesOfCall = 1 * GiB;

class MpiCarrier final : public Carrier {
 public:
  /// `mpi_ranks`: [rank of the job] what MPI calls it. MPI runs. Smaller calls are for tests.
  MpiCarrier(const Table& table, std::vector<int> mpi_ranks,
             size_t most_bytes_of_call = kMostBytesOfCall);
  /// Nothing of it is under way any more, or abandon() was called.
  ~MpiCarrier() override;

  /// Collective over `ranks` (global, ascending), of which this is one; blocks, so not for the
  /// driver. Two that share ranks are made in the same order everywhere. Throws Error{internal}.
  void make_communicator(const std::vector<int>& ranks);
  /// When no pass on it is left.
  void free_communicator(const std::vector<int>& ranks);
  /// A rank is lost: MPI is not called any more in this process, now and in later jobs.
  void abandon() { table_.abandon(); }

  void enter(const Group& group, const std::vector<int>& ranks) override;
  std::unique_ptr<Run> start(const Group& group, const PassKind& kind, const Blocks& blocks,
                             Work work) override;

  // ---- for its passes

  const Table& table() const { return table_; }
  size_t most_bytes_of_call() const { return most_bytes_of_call_; }
  /// Nothing while make_communicator() has not returned, of which other ranks may know.
  std::optional<Handle> communicator_of(const Group& group);
  /// Throws Error{internal} unless `error` is 0.
  void require(int error, std::string_view call) const;
  /// At least `bytes`, to be given back for the next pass.
  AlignedBuffer take_room(size_t bytes);
  void give_back(AlignedBuffer room);

 private:
  const Table& table_;
  const std::vector<int> mpi_ranks_;
  const size_t most_bytes_of_call_;
  std::map<const Group*, std::vector<int>> groups_;
  std::vector<AlignedBuffer> rooms_;  ///< that nobody uses now

  std::mutex mutex_;
  std::map<std::vector<int>, Handle> communicators_;  ///< under mutex_
};

}  // namespace hvd::mpi
