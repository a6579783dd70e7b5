// A communicator of NCCL for one group of ranks, in non-blocking mode.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>

#include "core/backend/nccl/gpu.h"
#include "core/backend/nccl/script.h"
#include "core/device/nccl.h"

namespace hvd::nccl {

/// For the holder of the progress token, with the context current. The handle lives on when it is
/// destroyed: NCCL may wait for other ranks when it ends a communicator, see Endings.
class Communicator {
 public:
  struct Options {
    device::UniqueId id{};
    int rank = 0;
    int size = 1;
    std::chrono::nanoseconds deadline{};  ///< for connecting, also by the first calls
  };
  /// Begins to connect the ranks. Throws Error{internal} with what NCCL says.
  Communicator(std::shared_ptr<const device::Nccl> nccl, const Options& options);

  device::CommHandle handle() const { return handle_; }
  /// Calls NCCL. Nothing may be queued on `stream` until settled() returns true. Throws
  /// Error{internal}.
  void queue(std::span<const Call> calls, device::StreamHandle stream);
  /// Returns false while NCCL connects the ranks or works on the last calls. Throws Error{internal}
  /// with its error, Error{timed_out} if it has not ended that after the deadline. If
  /// NCCL reports that another rank has failed, it waits for a while: the runtime knows soon which
  /// one.
  bool settled();

 private:
  device::NcclResult issue(const Call& call, device::StreamHandle stream) const;
  void note(device::NcclResult result, const char* doing);

  const std::shared_ptr<const device::Nccl> nccl_;
  std::chrono::steady_clock::time_point until_;
  const std::chrono::nanoseconds deadline_;
  const int size_;
  device::CommHandle handle_ = nullptr;
  const char* doing_ = "ncclCommInitRankConfig";                    ///< the last call
  std::optional<std::chrono::steady_clock::time_point> failed_at_;  ///< remote error
};

}  // namespace hvd::nccl
