#include "core/backend/nccl/ipc_rounds.h"

#include <algorithm>
#include <utility>

#include "core/backend/host/batch_memory.h"
#include "core/backend/nccl/stretch.h"
#include "core/base/assert.h"

namespace hvd::nccl {
namespace {

using device::DevicePointer;

/// Alignment of the parts of a place: a multiple of every element and of the widest access of the
/// kernels.
constexpr size_t kAlignment = 64;
/// Alignment of the tensors in a part, for the widest access of the copy kernels.
constexpr size_t kTensorAlignment = 16;

class IpcDivider {
 public:
  IpcDivider(const Batch& batch, const IpcFacts& facts) : batch_(batch), facts_(facts) {}

  std::vector<IpcRound> divide() {
    switch (batch_.operation.kind) {
      case OperationKind::allreduce:
        allreduce();
        break;
      case OperationKind::broadcast:
        broadcast();
        break;
      case OperationKind::reducescatter:
        reducescatter();
        break;
      case OperationKind::allgather:
        allgather();
        break;
      case OperationKind::alltoall:
        alltoall();
        break;
      default:
        HVD_ASSERT(false);
    }
    return std::move(made_);
  }

 private:
  size_t ranks() const { return static_cast<size_t>(facts_.size); }
  size_t rank() const { return static_cast<size_t>(facts_.rank); }
  size_t bytes_of(const BatchTensor& tensor) const {
    return tensor_bytes(tensor, batch_.operation.dtype);
  }
  size_t sent(size_t from, size_t to, size_t tensor) const {
    return static_cast<size_t>(facts_.rows.sent(from, to, tensor)) *
           row_bytes(batch_.tensors[tensor], batch_.operation.dtype);
  }

  /// Ranges of parts of up to `longest` bytes. A place has room for `parts` of them.
  std::vector<Range> ranges(size_t longest, size_t parts) const {
    const size_t bytes = facts_.place_bytes / parts / kAlignment * kAlignment;
    HVD_ASSERT(bytes > 0);
    return ranges_of(longest, bytes);
  }

  // ---- between tensors and places

  static void add(Stretch& stretch, DevicePointer tensor, size_t bytes,
                  std::optional<Stored> stored = {}) {
    stretch.add(tensor, bytes, stored);
    stretch.align(kTensorAlignment);
  }
  void pack(IpcRound& round, const Stretch& from, const Range& range, size_t place) const {
    from.visit_stored(range, [&](DevicePointer tensor, size_t offset, size_t bytes,
                                 const std::optional<DType>& stored_as) {
      auto& pieces = tensor == 0 ? round.neutral : round.packs;
      pieces.push_back({facts_.rank, place + offset, tensor, bytes, stored_as});
    });
  }
  /// Reads `range` of a tensor from the place of rank `from`.
  static void read(IpcRound& round, const Stretch& to, const Range& range, size_t from,
                   size_t place) {
    to.visit_stored(range, [&](DevicePointer tensor, size_t offset, size_t bytes,
                               const std::optional<DType>& stored_as) {
      if (tensor != 0)
        round.reads.push_back({static_cast<int>(from), place + offset, tensor, bytes, stored_as});
    });
  }

  // ---- allreduce

  void allreduce() {
    Stretch from, to;
    for (const BatchTensor& tensor : batch_.tensors) {
      const auto as = stored(tensor, batch_.operation.dtype);
      add(from, address_of(tensor.input), bytes_of(tensor), as);
      add(to, address_of(tensor.output), bytes_of(tensor), as);
    }
    // Two ranks read as much if each reduces all: half from the other rank, twice.
    const bool is_pair = ranks() == 2;
    for (const Range& range : ranges(from.bytes(), is_pair ? 2 : 1)) {
      IpcRound& round = made_.emplace_back();
      pack(round, from, range, 0);
      const size_t reduced = aligned(range.bytes, kAlignment);
      const bool has_room = reduced + range.bytes <= facts_.place_bytes;
      if (is_pair || (has_room && range.bytes <= facts_.reduced_by_all_bytes)) {
        round.reduction = {.from = 0, .to = reduced, .bytes = range.bytes};
        read(round, to, range, rank(), reduced);
      } else {
        reduce_shares(round, to, range);
      }
    }
  }

  /// Each rank reduces a share, in place, which all ranks read then.
  void reduce_shares(IpcRound& round, const Stretch& to, const Range& range) const {
    const size_t share = aligned((range.bytes + ranks() - 1) / ranks(), kAlignment);
    round.reads_reduced = true;
    for (size_t from = 0; from < ranks(); ++from) {
      const size_t begin = std::min(from * share, range.bytes);
      const size_t bytes = std::min(share, range.bytes - begin);
      read(round, to, {range.begin + begin, bytes}, from, begin);
      if (from == rank()) round.reduction = {.from = begin, .to = begin, .bytes = bytes};
    }
  }

  // ---- reducescatter

  /// A place has a part per rank, all as long as that of the first, which has the most rows.
  void reducescatter() {
    const std::vector<Stretch> parts = parts_by_rows(batch_, facts_.size, kTensorAlignment);
    Stretch own;
    for (const BatchTensor& tensor : batch_.tensors)
      add(own, address_of(tensor.output), output_bytes(batch_, tensor, facts_.rank, facts_.size));
    for (const Range& range : ranges(parts.front().bytes(), ranks())) {
      IpcRound& round = made_.emplace_back();
      const size_t part = aligned(range.bytes, kAlignment);
      for (size_t to = 0; to < ranks(); ++to) pack(round, parts[to], range, to * part);
      const size_t mine = rank() * part;  // which no other rank reads
      round.reduction = {.from = mine, .to = mine, .bytes = range.of(own.bytes())};
      read(round, own, range, rank(), mine);
    }
  }

  // ---- operations that move bytes

  void broadcast() {
    const auto root = static_cast<size_t>(batch_.operation.root);
    Stretch from, to;
    for (const BatchTensor& tensor : batch_.tensors) {
      const bool is_stored = root != rank() || tensor.input != tensor.output;
      add(from, address_of(tensor.input), bytes_of(tensor));
      add(to, is_stored ? address_of(tensor.output) : 0, bytes_of(tensor));
    }
    for (const Range& range : ranges(from.bytes(), 1)) {
      IpcRound& round = made_.emplace_back();
      if (root == rank()) pack(round, from, range, 0);
      read(round, to, range, root, 0);
    }
  }

  /// A part is what one rank brings to all tensors.
  void allgather() {
    Stretch own;
    std::vector<Stretch> to(ranks());
    size_t longest = 0;
    for (size_t i = 0; i < batch_.tensors.size(); ++i) {
      add(own, address_of(batch_.tensors[i].input), sent(rank(), rank(), i));
      DevicePointer place = address_of(batch_.tensors[i].output);
      for (size_t from = 0; from < ranks(); ++from) {
        const size_t bytes = sent(from, rank(), i);
        add(to[from], place, bytes);
        place += bytes;
        longest = std::max(longest, to[from].bytes());
      }
    }
    for (const Range& range : ranges(longest, 1)) {
      IpcRound& round = made_.emplace_back();
      pack(round, own, range, 0);
      for (size_t from = 0; from < ranks(); ++from) read(round, to[from], range, from, 0);
    }
  }

  /// A part is what one rank sends to another one. A place has one for each rank. The batch has one
  /// tensor.
  void alltoall() {
    std::vector<Stretch> from(ranks()), to(ranks());
    DevicePointer input = address_of(batch_.tensors[0].input),
                  output = address_of(batch_.tensors[0].output);
    size_t longest = 0;
    for (size_t peer = 0; peer < ranks(); ++peer) {
      from[peer].add(input, sent(rank(), peer, 0));
      to[peer].add(output, sent(peer, rank(), 0));
      input += from[peer].bytes();
      output += to[peer].bytes();
      for (size_t other = 0; other < ranks(); ++other)
        longest = std::max(longest, sent(peer, other, 0));
    }
    for (const Range& range : ranges(longest, ranks())) {
      IpcRound& round = made_.emplace_back();
      const size_t part = aligned(range.bytes, kAlignment);
      for (size_t peer = 0; peer < ranks(); ++peer) {
        pack(round, from[peer], range, peer * part);
        read(round, to[peer], range, peer, rank() * part);
      }
    }
  }

  const Batch& batch_;
  const IpcFacts& facts_;
  std::vector<IpcRound> made_;
};

}  // namespace

std::vector<IpcRound> ipc_rounds_of(const Batch& batch, const IpcFacts& facts) {
  return IpcDivider(batch, facts).divide();
}

}  // namespace hvd::nccl
