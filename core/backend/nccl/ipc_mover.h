// Moves a batch between the GPUs of one host, which read each other's GPU memory (CUDA IPC).
//
// Only the host orders the work of different processes: a rank queues work that reads the memory of
// another rank when that rank has seen on its host that the memory is written. So the GPU of a rank
// never waits for another process, and all work that is queued ends by itself, also if a rank is
// lost.
#pragma once

#include <memory>
#include <vector>

#include "core/backend/nccl/ipc_memory.h"
#include "core/backend/nccl/ipc_rounds.h"
#include "core/backend/nccl/mover.h"

namespace hvd::nccl {

struct IpcMoverFacts {
  std::shared_ptr<Gpu> gpu{};
  std::shared_ptr<IpcMemory> memory{};
  const std::vector<int>& ranks;  ///< global; must outlive the mover
  Batch batch{};
  IpcFacts rounds{};
};

/// Exchanges of a batch between the ranks. Each one needs unit numbers of its own, so a batch that
/// would need more than this goes through host memory.
inline constexpr size_t kMostIpcExchanges = 1024;
size_t ipc_exchanges(const std::vector<IpcRound>& rounds);

/// Whether there are kernels for a reduction, besides those of can_run_on_gpu(). Depends on nothing
/// else, so the ranks agree.
bool ipc_can_move(const Operation& operation);

/// `memory` has mapped all ranks. The batch is done when no rank reads memory of another one.
std::unique_ptr<Mover> ipc_mover(IpcMoverFacts facts, Backend& host, GroupLevels& groups);

}  // namespace hvd::nccl
