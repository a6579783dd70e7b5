// A Batch, and what runs it. A Backend moves the bytes of agreed operations over one Group; it
// knows nothing of names, agreement or frameworks. `host` works on host memory; others (nccl, mpi)
// stand beside it.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "core/base/aligned_buffer.h"
#include "core/base/dtype.h"
#include "core/base/shape.h"
#include "core/group/group.h"

namespace hvd {

enum class Transfer : uint8_t { allreduce, allgather, broadcast, alltoall, reducescatter };

/// An output that the backend allocates, because its size is known only when all ranks have met.
struct Gathered {
  AlignedBuffer memory;
  Shape shape;
};

/// One tensor of a batch, contiguous. Borrowed from the Request. May share memory with others.
struct BatchTensor {
  const std::byte* input =
      nullptr;  ///< nullptr: this rank has joined and contributes the neutral element
  /// allreduce, broadcast: as large as the input, may equal it. reducescatter: this rank's rows.
  /// allgather, alltoall: only where every rank sends equally many rows, which are then not asked
  /// for; else nullptr, and `gathered` is used.
  std::byte* output = nullptr;
  Shape shape{};                        ///< of the input
  Gathered* gathered = nullptr;         ///< allgather, alltoall: where the output goes
  std::vector<int32_t> splits{};        ///< alltoall: rows for each rank of the group
  Gathered* received_splits = nullptr;  ///< alltoall: rows from each rank, int32
};

/// Operations that run as one. All facts but `tensors[].shape[0]` of an allgather or alltoall and
/// `splits` are equal on all ranks.
struct Batch {
  uint64_t sequence = 0;  ///< its place among all batches of the job
  Transfer transfer = Transfer::allreduce;
  DType dtype = DType::uint8;
  ReduceOp op = ReduceOp::sum;
  double prescale = 1.0;
  double postscale = 1.0;
  int root = 0;  ///< broadcast: rank within the group
  std::vector<BatchTensor> tensors{};
};

/// One batch on its way. Owned and driven by one thread.
class Run {
 public:
  enum class Progress : uint8_t { moved, waiting, done };
  virtual ~Run() = default;
  /// Moves about one segment and returns. Throws Error{peer_lost}.
  virtual Progress advance() = 0;

  /// What the next advance() works on, for those who observe it.
  enum class Activity : uint8_t {
    sizes,    ///< the ranks tell each other how much they send
    outputs,  ///< outputs are allocated
    data,
  };
  virtual Activity activity() const { return Activity::data; }
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  /// `groups` and the memory of the tensors outlive the Run.
  virtual std::unique_ptr<Run> start(GroupLevels& groups, Batch batch) = 0;
};

}  // namespace hvd
