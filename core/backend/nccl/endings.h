// Ends communicators and the work that is queued on a GPU, on threads of its own: NCCL and the
// driver may wait there for other ranks, for ever if one is lost.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "core/backend/nccl/gpu.h"
#include "core/backend/nccl/mover.h"
#include "core/device/nccl.h"

namespace hvd::nccl {

/// What has to end. `gpu` and `nccl` may be nullptr if there is nothing else.
struct Remains {
  std::shared_ptr<Gpu> gpu{};
  std::shared_ptr<const device::Nccl> nccl{};
  std::vector<device::CommHandle> communicators{};
  std::vector<std::unique_ptr<Mover>> movers{};  ///< destroyed when the GPU has ended their work
  std::shared_ptr<const void> memory{};          ///< the same

  bool empty() const { return communicators.empty() && movers.empty() && !memory; }
};

enum class EndingKind : unsigned char {
  together,  ///< all ranks end their communicators now
  abort,     ///< after a loss: work that waits for other ranks is given up
};

/// The exit code of a process that ends because its GPU work cannot be ended. EX_TEMPFAIL of
/// sysexits.h: a new process can go on.
inline constexpr int kStuckGpuExitCode = 75;

struct EndingOptions {
  std::chrono::nanoseconds deadline = std::chrono::seconds(10);  ///< from the begin of an abort
  /// From the begin of EndingKind::together: the other ranks and their GPUs may be late.
  std::chrono::nanoseconds patience = std::chrono::seconds(30);
  /// Whether the process ends with kStuckGpuExitCode if an abort misses the deadline or fails. Its
  /// other threads may wait for the GPU, for ever; buffered output is lost.
  bool ends_process = false;
  /// For tests: called before each start of a thread; throws as if there could be none.
  std::function<void()> before_thread = [] {};
};

/// One ending. Used by one thread at a time.
class Endings {
 public:
  /// Begins it. Does not block. If no thread can be started for it, it fails.
  Endings(Remains remains, EndingKind kind, EndingOptions options);
  /// Waits until all has ended: an abort up to the deadline, an ending together up to the patience.
  /// If it has not ended by then or has failed, logs that this process cannot use the GPU any more,
  /// see require_usable_gpu(), and leaves the threads and the remains behind.
  ~Endings();
  /// Whether all has ended, or the destructor would not wait. Does not block.
  bool is_over() const;
  /// Continues as EndingKind::abort, because a rank was lost. Does not block. The deadline begins.
  void abort();
  Endings(const Endings&) = delete;
  Endings& operator=(const Endings&) = delete;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// Throws Error{invalid_argument} if an ending of this process has not ended its work: it may still
/// be queued on the GPU. Any thread may call it.
void require_usable_gpu();

}  // namespace hvd::nccl
