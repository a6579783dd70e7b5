// The ranks of a group on one host map the GPU memory of each other, and find out whether all can:
// two exchanges over the host backend.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/backend/nccl/ipc_memory.h"

namespace hvd::nccl {

/// What a rank says when it has mapped the memory of the others, exchanged as bytes.
struct IpcAnswer {
  uint32_t is_mapped = 0;
  ShortText<252> why_not{};
};

struct IpcMeetingFacts {
  std::shared_ptr<Gpu> gpu{};
  size_t place_bytes = 0;
  IpcMemory::Rank kind = IpcMemory::Rank::process;
  std::vector<int> ranks{};  ///< global
  int rank = 0;              ///< within the group
  uint64_t sequence = 0;     ///< of the batch
};

/// A run that ends with the `answers` of all ranks, the same on each; both must outlive it.
/// `memory`: that of this process, made if there is none. What fails here becomes an answer.
std::unique_ptr<Run> ipc_meeting(IpcMeetingFacts facts, std::shared_ptr<IpcMemory>& memory,
                                 std::vector<IpcAnswer>& answers, Backend& host,
                                 GroupLevels& groups);

/// Why not all ranks have mapped the memory of all: of the first that says so, with its name.
/// Empty: they have.
std::string why_not_mapped(const std::vector<IpcAnswer>& answers, const std::vector<int>& ranks);

}  // namespace hvd::nccl
