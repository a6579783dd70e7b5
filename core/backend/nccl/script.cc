#include "core/backend/nccl/script.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>

#include "core/backend/host/batch_memory.h"
#include "core/backend/nccl/stretch.h"
#include "core/base/assert.h"

namespace hvd::nccl {
namespace {

using device::CopyKind;
using device::CopyScaling;
using device::NcclType;
using device::Piece;

/// The alignment of tensors in scratch memory, for the widest accesses of the copy kernels.
constexpr size_t kScratchAlignment = 16;

std::optional<NcclType> type_of(DType dtype) {
  switch (dtype) {
    case DType::boolean:  // 0 and 1: the smallest is `and`, the largest is `or`
    case DType::uint8:
      return NcclType::uint8;
    case DType::int8:
      return NcclType::int8;
    case DType::int32:
      return NcclType::int32;
    case DType::int64:
      return NcclType::int64;
    case DType::float16:
      return NcclType::float16;
    case DType::float32:
      return NcclType::float32;
    case DType::float64:
      return NcclType::float64;
    case DType::bfloat16:
      return NcclType::bfloat16;
    case DType::uint16:
    case DType::int16:
      break;
  }
  return std::nullopt;
}

device::NcclReduceOp reduction_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::min:
      return device::kNcclMin;
    case ReduceOp::max:
      return device::kNcclMax;
    case ReduceOp::product:
      return device::kNcclProduct;
    default:
      return device::kNcclSum;  // an average is divided by our kernel
  }
}

bool scales(const CopyScaling& scaling) { return scaling.divisor != 1 || scaling.factor != 1; }

/// Averages are sums, which are divided when they are copied out.
CopyScaling scaling_after(const Operation& operation, int size) {
  const bool divides = operation.op == ReduceOp::average;
  return {.divisor = divides ? static_cast<double>(size) : 1.0, .factor = operation.postscale};
}

class Writer {
 public:
  Writer(const Batch& batch, const ScriptFacts& facts)
      : batch_(batch),
        facts_(facts),
        dtype_(batch.operation.dtype),
        output_bytes_(output_sizes(batch, facts.rows, facts.rank, facts.size)) {}

  Script write() {
    choose_outputs();
    switch (batch_.operation.kind) {
      case OperationKind::allreduce:
        facts_.hosts == 1 ? allreduce() : allreduce_in_levels();
        break;
      case OperationKind::reducescatter:
        reducescatter();
        break;
      case OperationKind::broadcast:
        broadcast();
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
    store_private_outputs();
    limit_calls();
    const auto drop_empty = [](std::vector<Copy>& copies) {
      std::erase_if(copies, [](const Copy& copy) { return copy.pieces.empty(); });
    };
    for (Round& round : made_.rounds) {
      drop_empty(round.before);
      drop_empty(round.after);
      std::erase_if(round.calls, [](const Call& call) { return call.count == 0; });
    }
    drop_empty(made_.after);
    return std::move(made_);
  }

 private:
  // ---- memory

  /// Ranges of parts of up to `longest` bytes. A round has `parts` of them in `limit` bytes.
  static std::vector<Range> ranges(size_t longest, size_t parts, size_t limit) {
    const size_t most = limit / parts / kScratchAlignment * kScratchAlignment;
    return ranges_of(longest, std::max(most, kScratchAlignment));
  }
  std::vector<Range> ranges(size_t longest, size_t parts) const {
    return ranges(longest, parts, facts_.scratch_limit);
  }
  /// Scratch memory of the current round.
  DevicePointer take_scratch(size_t bytes) {
    made_.scratch_bytes =
        std::max(made_.scratch_bytes, private_bytes_ + aligned(bytes, kScratchAlignment));
    return facts_.scratch + private_bytes_;
  }
  Round& add_round() { return made_.rounds.emplace_back(); }
  size_t bytes_of(size_t tensor) const { return tensor_bytes(batch_.tensors[tensor], dtype_); }
  DevicePointer input(size_t tensor) const { return address_of(batch_.tensors[tensor].input); }
  size_t rank() const { return static_cast<size_t>(facts_.rank); }
  size_t ranks() const { return static_cast<size_t>(facts_.size); }
  size_t bytes_of_rows(int64_t rows, size_t tensor) const {
    return static_cast<size_t>(rows) * row_bytes(batch_.tensors[tensor], dtype_);
  }
  size_t bytes_sent(size_t from, size_t to, size_t tensor) const {
    return bytes_of_rows(facts_.rows.sent(from, to, tensor), tensor);
  }

  /// Outputs that share memory are stored at the end, in the order of the tensors.
  void choose_outputs() {
    for (size_t i = 0; i < batch_.tensors.size(); ++i) {
      const bool is_private = std::ranges::binary_search(facts_.overlapping, i);
      outputs_.push_back(is_private ? facts_.scratch + private_bytes_
                                    : address_of(batch_.tensors[i].output));
      if (is_private) private_bytes_ += aligned(output_bytes_[i], kScratchAlignment);
    }
    made_.scratch_bytes = private_bytes_;
  }
  void store_private_outputs() {
    for (const size_t i : facts_.overlapping)
      add(made_.after.emplace_back(), outputs_[i], address_of(batch_.tensors[i].output),
          output_bytes_[i]);
  }

  // ---- copies and calls

  /// Adds a piece of `bytes`, counted as the kind counts.
  void add(Copy& copy, DevicePointer from, DevicePointer to, size_t bytes) const {
    if (bytes == 0 || (from == to && !scales(copy.scaling))) return;
    const size_t unit = copy.kind == CopyKind::bytes ? 1 : element_bytes(dtype_);
    copy.pieces.push_back({memory_at(from), memory_at(to), bytes / unit});
  }
  Copy& scaled_copy(std::vector<Copy>& copies, const CopyScaling& scaling) const {
    const auto kind = device::copy_kind(dtype_, dtype_, scaling);
    HVD_ASSERT(kind.has_value());  // see can_run_on_gpu()
    return copies.emplace_back(Copy{.kind = *kind, .scaling = scaling});
  }
  void reduce(Round& round, Call::Function function, DevicePointer from, DevicePointer to,
              size_t bytes) const {
    round.calls.push_back({.function = function,
                           .from = from,
                           .to = to,
                           .count = bytes / element_bytes(dtype_),
                           .type = *type_of(dtype_),
                           .op = reduction_of(batch_.operation.op)});
  }
  static void move(Round& round, Call::Function function, DevicePointer from, DevicePointer to,
                   size_t bytes, size_t peer = 0) {
    round.calls.push_back({.function = function,
                           .from = from,
                           .to = to,
                           .count = bytes,
                           .peer = static_cast<int>(peer)});
  }
  CopyScaling before() const { return {.factor = batch_.operation.prescale}; }
  CopyScaling after() const { return scaling_after(batch_.operation, facts_.size * facts_.hosts); }

  // ---- allreduce

  /// A piece of a tensor; `from` 0: this rank has joined.
  struct Reduced {
    DevicePointer from = 0;
    DevicePointer to = 0;
    size_t offset = 0;
    size_t bytes = 0;                  ///< that are sent
    std::optional<DType> stored_as{};  ///< in `from` and `to`
  };

  /// Inputs and outputs of all tensors.
  struct Both {
    Stretch from, to;

    std::vector<Reduced> pieces(const Range& range) const {
      std::vector<Reduced> made;
      from.visit_stored(range, [&](DevicePointer memory, size_t offset, size_t bytes,
                                   const std::optional<DType>& stored_as) {
        made.push_back({.from = memory, .offset = offset, .bytes = bytes, .stored_as = stored_as});
      });
      size_t next = 0;
      to.visit(range, [&](DevicePointer memory, size_t, size_t) { made[next++].to = memory; });
      return made;
    }
  };
  Both all_tensors() const {
    Both both;
    for (size_t i = 0; i < batch_.tensors.size(); ++i) {
      both.from.align(kScratchAlignment);
      both.to.align(kScratchAlignment);
      const auto as = stored(batch_.tensors[i], dtype_);
      both.from.add(input(i), bytes_of(i), as);
      both.to.add(outputs_[i], bytes_of(i), as);
    }
    return both;
  }

  void allreduce() {
    const Both both = all_tensors();
    const size_t limit = batch_.tensors.size() == 1
                             ? std::max(facts_.scratch_limit, facts_.single_limit)
                             : facts_.scratch_limit;
    for (const Range& range : ranges(both.from.bytes(), 1, limit)) {
      const std::vector<Reduced> pieces = both.pieces(range);
      if (pieces.size() == 1) {
        allreduce_one(pieces[0]);
        continue;
      }
      Round& round = add_round();
      const DevicePointer begin = take_scratch(range.bytes);
      pack(round, pieces, begin);
      reduce(round, Call::Function::all_reduce, begin, begin, range.bytes);
    }
  }

  /// Scratch memory has a share per rank of the host, all of the same size.
  void allreduce_in_levels() {
    const Both both = all_tensors();
    const size_t most = std::max(facts_.scratch_limit / ranks() / kScratchAlignment, size_t{1});
    for (const Range& range : ranges_of(both.from.bytes(), most * kScratchAlignment * ranks())) {
      Round& round = add_round();
      const size_t share = aligned((range.bytes + ranks() - 1) / ranks(), kScratchAlignment);
      const DevicePointer begin = take_scratch(share * ranks()), mine = begin + rank() * share;
      pack(round, both.pieces(range), begin);
      reduce(round, Call::Function::reduce_scatter, begin, mine, share);
      round.share = {mine, share};
      round.calls_after_share.push_back(
          {.function = Call::Function::all_gather, .from = mine, .to = begin, .count = share});
    }
  }

  void pack(Round& round, const std::vector<Reduced>& pieces, DevicePointer begin) const {
    for (const Reduced& piece : pieces) {
      const DevicePointer place = begin + piece.offset;
      if (piece.from == 0) {
        fill(round, place, piece.bytes);
        continue;
      }
      const DType stored_as = piece.stored_as.value_or(dtype_);
      add(copy_between(round.before, stored_as, dtype_, before()), piece.from, place, piece.bytes);
      add(copy_between(round.after, dtype_, stored_as, after()), place, piece.to, piece.bytes);
    }
  }
  /// One kernel for all tensors that are converted in the same way.
  static Copy& copy_between(std::vector<Copy>& copies, DType from, DType to,
                            const CopyScaling& scaling) {
    const auto kind = device::copy_kind(from, to, scaling);
    HVD_ASSERT(kind.has_value());  // see can_run_on_gpu() and hvd_request.sent_as
    const auto found =
        std::ranges::find_if(copies, [&](const Copy& copy) { return copy.kind == *kind; });
    if (found != copies.end()) return *found;
    return copies.emplace_back(Copy{.kind = *kind, .scaling = scaling});
  }

  /// With the gap behind the piece before, if that is filled too.
  static void fill(Round& round, DevicePointer to, size_t bytes) {
    if (!round.fills.empty()) {
      Fill& last = round.fills.back();
      const DevicePointer end = last.to + aligned(last.bytes, kScratchAlignment);
      if (end == to) {
        last.bytes = to + bytes - last.to;
        return;
      }
    }
    round.fills.push_back({to, bytes});
  }

  /// Without a copy, unless it is scaled or converted.
  void allreduce_one(Reduced piece) {
    Round& round = add_round();
    if (piece.from == 0 || piece.stored_as) {
      const DevicePointer place = take_scratch(piece.bytes);
      piece.offset = 0;
      pack(round, {piece}, place);
      return reduce(round, Call::Function::all_reduce, place, place, piece.bytes);
    }
    if (scales(before()))
      add(scaled_copy(round.before, before()), piece.from, piece.to, piece.bytes);
    reduce(round, Call::Function::all_reduce, scales(before()) ? piece.to : piece.from, piece.to,
           piece.bytes);
    add(scaled_copy(round.after, after()), piece.to, piece.to, piece.bytes);
  }

  // ---- reducescatter

  /// Scratch memory has a part per rank, all as long as that of the first, which has the most rows.
  void reducescatter() {
    const std::vector<Stretch> parts = parts_by_rows(batch_, facts_.size, kScratchAlignment);
    Stretch own;
    for (size_t i = 0; i < batch_.tensors.size(); ++i) {
      own.add(outputs_[i], output_bytes_[i]);
      own.align(kScratchAlignment);
    }
    for (const Range& range : ranges(parts.front().bytes(), ranks())) {
      Round& round = add_round();
      const DevicePointer begin = take_scratch(range.bytes * ranks());
      const DevicePointer mine = begin + rank() * range.bytes;
      Copy& packed = scaled_copy(round.before, before());
      for (size_t to = 0; to < ranks(); ++to)
        parts[to].visit(range, [&](DevicePointer from, size_t offset, size_t bytes) {
          add(packed, from, begin + to * range.bytes + offset, bytes);
        });
      Copy& unpacked = scaled_copy(round.after, after());
      own.visit(range, [&](DevicePointer to, size_t offset, size_t bytes) {
        add(unpacked, mine + offset, to, bytes);
      });
      reduce(round, Call::Function::reduce_scatter, begin, mine, range.bytes);
    }
  }

  // ---- operations that move bytes

  void broadcast() {
    Round& round = add_round();
    const auto root = static_cast<size_t>(batch_.operation.root);
    for (size_t i = 0; i < batch_.tensors.size(); ++i)
      move(round, Call::Function::broadcast, input(i), outputs_[i], bytes_of(i), root);
  }

  void allgather() {
    if (batch_.tensors.size() > 1) return allgather_packed();
    std::vector<size_t> parts;
    for (size_t from = 0; from < ranks(); ++from) parts.push_back(bytes_sent(from, rank(), 0));
    gather(add_round(), parts, input(0), outputs_[0]);
  }
  /// Scratch memory has a block per rank, with its parts of all tensors.
  void allgather_packed() {
    Stretch own;
    std::vector<Stretch> gathered(ranks());  // by rank that brings it
    size_t longest = 0;
    for (size_t from = 0; from < ranks(); ++from) {
      for (size_t i = 0; i < batch_.tensors.size(); ++i) {
        size_t stored = 0;
        for (size_t earlier = 0; earlier < from; ++earlier)
          stored += bytes_sent(earlier, rank(), i);
        const size_t bytes = bytes_sent(from, rank(), i);
        gathered[from].add(outputs_[i] + stored, bytes);
        gathered[from].align(kScratchAlignment);
        if (from != rank()) continue;
        own.add(input(i), bytes);
        own.align(kScratchAlignment);
      }
      longest = std::max(longest, gathered[from].bytes());
    }
    for (const Range& range : ranges(longest, ranks())) gather_packed(own, gathered, range);
  }
  void gather_packed(const Stretch& own, const std::vector<Stretch>& gathered, const Range& range) {
    Round& round = add_round();
    std::vector<size_t> blocks;
    for (const Stretch& one : gathered) blocks.push_back(range.of(one.bytes()));
    const DevicePointer begin =
        take_scratch(std::accumulate(blocks.begin(), blocks.end(), size_t{0}));
    DevicePointer block = begin, mine = begin;
    Copy& unpacked = round.after.emplace_back();
    for (size_t from = 0; from < ranks(); ++from) {
      if (from == rank()) mine = block;
      gathered[from].visit(range, [&](DevicePointer to, size_t offset, size_t bytes) {
        add(unpacked, block + offset, to, bytes);
      });
      block += blocks[from];
    }
    Copy& packed = round.before.emplace_back();
    own.visit(range, [&](DevicePointer from, size_t offset, size_t bytes) {
      add(packed, from, mine + offset, bytes);
    });
    gather(round, blocks, mine, begin);
  }
  /// Gathers blocks of these sizes, one per rank, to consecutive memory.
  void gather(Round& round, const std::vector<size_t>& blocks, DevicePointer from,
              DevicePointer to) const {
    const bool are_equal = std::ranges::adjacent_find(blocks, std::not_equal_to()) == blocks.end();
    if (are_equal) return move(round, Call::Function::all_gather, from, to, blocks.front());
    for (size_t root = 0; root < ranks(); ++root) {
      move(round, Call::Function::broadcast, root == rank() ? from : to, to, blocks[root], root);
      to += blocks[root];
    }
  }

  void alltoall() {
    Round& round = add_round();
    DevicePointer from = input(0), to = outputs_[0];
    for (size_t peer = 0; peer < ranks(); ++peer) {
      const size_t out = bytes_sent(rank(), peer, 0), in = bytes_sent(peer, rank(), 0);
      move(round, Call::Function::send, from, 0, out, peer);
      move(round, Call::Function::receive, 0, to, in, peer);
      from += out;
      to += in;
    }
  }

  // ---- the limit of NCCL

  /// Divides rounds with too many calls. Their number is equal on all ranks until those that move
  /// nothing are dropped. Messages of two ranks may be in rounds of different numbers. No ranks
  /// wait for each other in a circle: those with the lowest numbers can always go on.
  void limit_calls() {
    std::vector<Round> limited;
    for (Round& round : made_.rounds) {
      while (round.calls.size() > kMostCalls) {
        const auto end = round.calls.begin() + static_cast<ptrdiff_t>(kMostCalls);
        limited.push_back({.fills = std::exchange(round.fills, {}),
                           .before = std::exchange(round.before, {}),
                           .calls = {round.calls.begin(), end}});
        round.calls.erase(round.calls.begin(), end);
      }
      limited.push_back(std::move(round));
    }
    made_.rounds = std::move(limited);
  }

  const Batch& batch_;
  const ScriptFacts& facts_;
  const DType dtype_;
  const std::vector<size_t> output_bytes_;  ///< by tensor
  std::vector<DevicePointer> outputs_;
  size_t private_bytes_ = 0;  ///< of private outputs, at the begin of scratch memory
  Script made_;
};

}  // namespace

bool can_run_on_gpu(const Operation& operation, int size) {
  if (!reduces(operation.kind)) return true;
  if (!type_of(operation.dtype)) return false;
  if (operation.op == ReduceOp::adasum) return size == 1;
  const auto can_scale = [&](const CopyScaling& scaling) {
    return device::copy_kind(operation.dtype, operation.dtype, scaling).has_value();
  };
  return can_scale({.factor = operation.prescale}) && can_scale(scaling_after(operation, size));
}

bool depends_on_order(const Operation& operation, int size) {
  const bool adds = operation.op != ReduceOp::min && operation.op != ReduceOp::max;
  return reduces(operation.kind) && adds && is_floating(operation.dtype) && size > 2;
}

Script script_of(const Batch& batch, const ScriptFacts& facts) {
  return Writer(batch, facts).write();
}

}  // namespace hvd::nccl
