// Divides a batch into rounds for ranks that read each other's GPU memory (CUDA IPC). Each rank has
// places of equal size, which the others read. In a round every rank packs its tensors into one of
// its places; when all have done so, they read what they need from the places of the others. Pure
// functions.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "core/backend/backend.h"
#include "core/backend/nccl/row_counts.h"
#include "core/device/driver_api.h"

namespace hvd::nccl {

/// Up to this size each rank reduces all of a round itself: that costs more reading, but the ranks
/// need not wait for each other a second time. Not measured.
inline constexpr size_t kReducedByAllBytes = size_t{256} << 10;

struct IpcRound {
  /// A piece of a tensor, and of the place of a rank.
  struct Piece {
    int rank = 0;       ///< whose place
    size_t offset = 0;  ///< in it
    device::DevicePointer tensor = 0;
    size_t bytes = 0;                  ///< in the place
    std::optional<DType> stored_as{};  ///< of the tensor, if not the type of the batch
  };
  /// Reduces the same memory of all places to the own one.
  struct Reduction {
    size_t from = 0;
    size_t to = 0;
    size_t bytes = 0;
  };

  std::vector<Piece> packs{};    ///< to the own place
  std::vector<Piece> neutral{};  ///< in the own place, without a tensor: this rank has joined
  std::optional<Reduction> reduction{};  ///< when all ranks have packed
  /// Whether `reads` are of what other ranks have reduced, so that they must wait for each other
  /// again. Equal on all ranks.
  bool reads_reduced = false;
  std::vector<Piece> reads{};  ///< at the end, to the tensors
};

struct IpcFacts {
  int rank = 0;
  int size = 1;
  RowCounts rows{};        ///< of an allgather or alltoall
  size_t place_bytes = 0;  ///< at least 64 for each rank
  size_t reduced_by_all_bytes = kReducedByAllBytes;
};

/// The rounds of `batch`, as many on all ranks. Not for Adasum.
std::vector<IpcRound> ipc_rounds_of(const Batch& batch, const IpcFacts& facts);

}  // namespace hvd::nccl
