// What a batch does on a GPU, as data: rounds of copies before a collective, calls of NCCL, which
// form one group, and copies after it. Made from a Batch by pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/backend/backend.h"
#include "core/backend/nccl/row_counts.h"
#include "core/device/copy_kernels.h"
#include "core/device/nccl_api.h"

namespace hvd::nccl {

using device::DevicePointer;
inline void* memory_at(DevicePointer address) { return reinterpret_cast<void*>(address); }

/// One call of NCCL.
struct Call {
  enum class Function : uint8_t {
    all_reduce,
    all_gather,
    reduce_scatter,
    broadcast,
    send,
    receive
  };
  Function function = Function::all_reduce;
  DevicePointer from = 0;  ///< receive: not used
  DevicePointer to = 0;    ///< send: not used
  size_t count = 0;        ///< elements, as the function counts them
  device::NcclType type = device::NcclType::uint8;
  device::NcclReduceOp op = device::kNcclSum;
  int peer = 0;  ///< broadcast: the root
};

/// Pieces that are copied at the same time.
struct Copy {
  device::CopyKind kind = device::CopyKind::bytes;
  device::CopyScaling scaling{};
  std::vector<device::Piece> pieces{};
};

/// Neutral elements, stored before the copies: this rank has joined.
struct Fill {
  DevicePointer to = 0;
  size_t bytes = 0;
};

struct Round {
  /// Memory that is reduced with that of the other hosts, in place, when `calls` have ended.
  struct Share {
    DevicePointer memory = 0;
    size_t bytes = 0;
  };
  std::vector<Fill> fills{};
  std::vector<Copy> before{};
  std::vector<Call> calls{};
  std::optional<Share> share{};
  std::vector<Call> calls_after_share{};
  std::vector<Copy> after{};
};

struct Script {
  std::vector<Round> rounds{};  ///< one after the other, in the same scratch memory
  std::vector<Copy> after{};    ///< all rounds: of private outputs
  size_t scratch_bytes = 0;     ///< how much scratch memory it uses
};

/// Whether NCCL and the copy kernels can do `operation`. If not, it goes through host memory.
/// Depends on nothing else, so the ranks agree.
bool can_run_on_gpu(const Operation& operation, int size);
/// Whether the bits of the result depend on the order in which `size` ranks are reduced. NCCL
/// chooses it by the size of the buffer and the place of an element in it.
bool depends_on_order(const Operation& operation, int size);

/// The place of this rank, and facts of the batch that not every rank knows by itself.
struct ScriptFacts {
  int rank = 0;  ///< within the communicator
  int size = 1;  ///< of the communicator
  /// Not 1: the communicator is that of one of so many hosts, for an allreduce in levels: it
  /// scatters sums to the ranks of each host, which reduce their shares with those of the other
  /// hosts, and gathers them.
  int hosts = 1;
  RowCounts rows{};  ///< of an allgather or alltoall
  /// Tensors whose output shares memory with another one, ascending: they get private outputs.
  std::vector<size_t> overlapping{};
  DevicePointer scratch = 0;  ///< address of the scratch memory
  /// How much of it a round may use, besides private outputs; equal on all ranks.
  size_t scratch_limit = SIZE_MAX;
  /// How much of a single tensor a round may reduce, if that is more. Only a rank that has joined
  /// needs scratch memory for it. Many small rounds would be slow.
  size_t single_limit = size_t{256} << 20;
};

/// NCCL takes up to 2048 calls in a group.
inline constexpr size_t kMostCalls = 1024;

/// Rounds and calls are equal on all ranks except for addresses; `overlapping` does not change
/// them. `batch.tensors` have all outputs, except on a rank that has joined.
Script script_of(const Batch& batch, const ScriptFacts& facts);

}  // namespace hvd::nccl
