#include "core/backend/nccl/ipc_mover.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <utility>

#include "core/backend/host/overlap.h"
#include "core/backend/nccl/stretch.h"
#include "core/kernel/kernel.h"

namespace hvd::nccl {
namespace {

using device::CopyKind;
using device::DevicePointer;

/// Neutral elements are copied to the GPU in pieces of this size.
constexpr size_t kFillBytes = 64 * KiB;

device::Merge merge_of(const Operation& operation) {
  switch (operation.op) {
    case ReduceOp::min:
      return device::Merge::min;
    case ReduceOp::max:
      return device::Merge::max;
    case ReduceOp::product:  // of booleans: `and`
      return operation.dtype == DType::boolean ? device::Merge::min : device::Merge::product;
    default:  // of booleans: `or`
      return operation.dtype == DType::boolean ? device::Merge::max : device::Merge::sum;
  }
}

bool is_sum(ReduceOp op) { return op == ReduceOp::sum || op == ReduceOp::average; }

/// Each step of the ranks ends with an exchange over the host backend. A rank enters exchange `s`
/// when the host has seen that its GPU has
///   - packed round s,
///   - reduced its share of round s - 1, if others read it,
///   - done what it queued after exchange s - 2 and before.
/// After it, the ranks reduce and read round s, and read the shares of round s - 1. So round
/// s + kPlaces may be packed in the place of round s after exchange s + kPlaces - 1: all have done
/// what they queued after exchange s + 1.
static_assert(IpcMemory::kPlaces >= 4);

class IpcMover final : public Mover {
 public:
  IpcMover(IpcMoverFacts facts, Backend& host, GroupLevels& groups)
      : gpu_(std::move(facts.gpu)),
        memory_(std::move(facts.memory)),
        ranks_(facts.ranks),
        rank_(facts.rounds.rank),
        host_(host),
        groups_(groups),
        batch_(std::move(facts.batch)),
        facts_(std::move(facts.rounds)),
        output_bytes_(output_sizes(batch_, facts_.rows, facts_.rank, facts_.size)),
        overlapping_(OverlapSearch().find(batch_, facts_.rank, output_bytes_)),
        rounds_(ipc_rounds_of(batch_, facts_)),
        steps_(ipc_exchanges(rounds_)),
        done_(steps_) {}

  Progress advance() override {
    if (rounds_.empty()) return Progress::done;
    if (!has_begun_) return begin();
    if (!exchange_) {
      if (!may_enter(step_)) return Progress::waiting;
      start_exchange();
    }
    const Progress progress = exchange_->advance();
    if (progress != Progress::done) return progress;
    exchange_.reset();
    if (step_ + 1 == steps_) return Progress::done;
    queue_after(step_++);
    return Progress::moved;
  }
  /// The run is done when the GPU is.
  std::shared_ptr<const DevicePoint> result() const override { return nullptr; }
  bool waits_for_ranks() const override { return exchange_ != nullptr; }
  void cancel() override { exchange_.reset(); }

 private:
  /// What was queued after an exchange, and the pack before it.
  struct Queued {
    std::shared_ptr<const DevicePoint> packed{}, reduced{}, read{};
  };

  static bool is_reached(const std::shared_ptr<const DevicePoint>& point) {
    return !point || point->reached();
  }

  Progress begin() {
    if (!has_memory()) return Progress::waiting;
    // The other stream needs no wait: it gets work when the host has seen the first pack.
    wait_for_tensors(batch_, gpu_->download_stream());
    has_begun_ = true;
    pack(0);
    return Progress::moved;
  }

  // ---- memory

  /// Outputs that share memory with other tensors are stored at the end, in the order of tensors.
  bool has_memory() {
    if (overlapping_.empty()) return true;
    if (!gpu_->idle()) return false;
    if (gpu_->scratch_bytes() < private_bytes()) gpu_->grow_scratch(private_bytes());
    Batch changed = batch_;
    for_each_private([&](size_t tensor, DevicePointer memory, size_t) {
      changed.tensors[tensor].output = reinterpret_cast<std::byte*>(memory);
    });
    rounds_ = ipc_rounds_of(changed, facts_);
    return true;
  }
  /// Calls `see(tensor, private memory, bytes)`.
  template <class See>
  void for_each_private(See see) const {
    size_t offset = 0;
    for (const size_t tensor : overlapping_) {
      see(tensor, gpu_->scratch() + offset, output_bytes_[tensor]);
      offset += aligned(output_bytes_[tensor], 16);
    }
  }
  size_t private_bytes() const {
    size_t bytes = 0;
    for (const size_t tensor : overlapping_) bytes += aligned(output_bytes_[tensor], 16);
    return bytes;
  }

  // ---- exchanges

  bool may_enter(size_t step) const {
    if (step < rounds_.size() && !is_reached(done_[step].packed)) return false;
    if (step >= 1 && !is_reached(done_[step - 1].reduced)) return false;
    const bool is_last = step + 1 == steps_;
    if (is_last) return step < 1 || is_reached(done_[step - 1].read);
    return step < 2 || is_reached(done_[step - 2].read);
  }

  void start_exchange() {
    Batch batch{.sequence = batch_.sequence,
                .operation = {.kind = OperationKind::allgather, .dtype = DType::uint8},
                .part = part_of_segment(batch_.part, step_, steps_)};
    batch.tensors.push_back({.input = &word_, .output = words_.data(), .shape = {1, 1}});
    exchange_ = host_.start(groups_, std::move(batch));
  }

  void queue_after(size_t step) {
    if (step + 1 < rounds_.size()) pack(step + 1);
    if (step < rounds_.size() && rounds_[step].reduction) reduce(step);
    if (step >= 1 && rounds_[step - 1].reads_reduced) read(step - 1);
    if (step < rounds_.size() && !rounds_[step].reads_reduced) read(step);
    if (step + 2 == steps_) store_private_outputs();
    done_[step].read = gpu_->point(gpu_->stream());
  }

  // ---- work on the GPU

  DevicePointer place(int rank, size_t round) const {
    return memory_->place(ranks_[static_cast<size_t>(rank)], round % IpcMemory::kPlaces);
  }

  void pack(size_t round) {
    const device::StreamHandle stream = gpu_->download_stream();
    const DevicePointer own = place(rank_, round);
    if (!rounds_[round].neutral.empty()) fill(rounds_[round].neutral, own, stream);
    const device::CopyScaling scaling{.factor = scale_before_packing()};
    for (const std::optional<DType> stored_as : stored_types()) {
      std::vector<device::Piece> pieces;
      const CopyKind kind =
          device::copy_kind(stored_as.value_or(dtype()), dtype(), scaling).value();
      for (const IpcRound::Piece& piece : rounds_[round].packs)
        if (piece.stored_as == stored_as)
          pieces.push_back({memory_at(piece.tensor), memory_at(own + piece.offset),
                            piece.bytes / unit_of(kind)});
      gpu_->kernels().launch(kind, pieces, scaling, stream);
    }
    done_[round].packed = gpu_->point(stream);
  }
  /// Sums are scaled when they are computed, before they are rounded. The neutral elements of other
  /// reductions must not be scaled.
  double scale_before_packing() const {
    const Operation& operation = batch_.operation;
    return reduces(operation.kind) && !is_sum(operation.op) ? operation.prescale : 1.0;
  }

  void fill(const std::vector<IpcRound::Piece>& pieces, DevicePointer own,
            device::StreamHandle stream) {
    const Operation& operation = batch_.operation;
    if (!neutral_) {
      neutral_ = gpu_->take_pinned(kFillBytes, PinnedLimit::none);
      kernel::fill_neutral(operation.op, operation.dtype, neutral_->bytes().data(),
                           kFillBytes / element_bytes(operation.dtype));
    }
    for (const IpcRound::Piece& piece : pieces)
      repeat(neutral_->address(), own + piece.offset, piece.bytes, stream);
  }
  /// Repeats kFillBytes. Few calls: each copy doubles what is stored.
  void repeat(DevicePointer from, DevicePointer to, size_t bytes,
              device::StreamHandle stream) const {
    size_t stored = std::min(kFillBytes, bytes);
    device::copy_async(gpu_->driver(), to, from, stored, stream);
    for (size_t next = 0; stored < bytes; stored += next) {
      next = std::min(stored, bytes - stored);
      device::copy_async(gpu_->driver(), to + stored, to, next, stream);
    }
  }

  void reduce(size_t round) {
    const Operation& operation = batch_.operation;
    const IpcRound::Reduction& reduction = *rounds_[round].reduction;
    std::vector<DevicePointer> from;
    for (int rank = 0; rank < facts_.size; ++rank)
      from.push_back(place(rank, round) + reduction.from);
    const bool divides = operation.op == ReduceOp::average;
    memory_->kernels().launch(
        {.dtype = operation.dtype,
         .merge = merge_of(operation),
         .scaling = {.before = is_sum(operation.op) ? operation.prescale : 1.0,
                     .divisor = divides ? static_cast<double>(facts_.size) : 1.0,
                     .after = operation.postscale},
         .from = from,
         .to = place(rank_, round) + reduction.to,
         .count = reduction.bytes / element_bytes(operation.dtype)},
        gpu_->stream());
    if (rounds_[round].reads_reduced) done_[round].reduced = gpu_->point(gpu_->stream());
  }

  void read(size_t round) const {
    for (const std::optional<DType> stored_as : stored_types()) {
      std::vector<device::Piece> pieces;
      const CopyKind kind = device::copy_kind(dtype(), stored_as.value_or(dtype()), {}).value();
      for (const IpcRound::Piece& piece : rounds_[round].reads)
        if (piece.stored_as == stored_as)
          pieces.push_back({memory_at(place(piece.rank, round) + piece.offset),
                            memory_at(piece.tensor), piece.bytes / unit_of(kind)});
      gpu_->kernels().launch(kind, pieces, {}, gpu_->stream());
    }
  }

  DType dtype() const { return batch_.operation.dtype; }
  size_t unit_of(CopyKind kind) const {
    return kind == CopyKind::bytes ? 1 : element_bytes(dtype());
  }
  /// Tensors are stored as they are sent, or as float32, see hvd_request.
  std::span<const std::optional<DType>> stored_types() const {
    static constexpr std::optional<DType> kTypes[] = {std::nullopt, DType::float32};
    const bool converts = dtype() == DType::float16 || dtype() == DType::bfloat16;
    return std::span(kTypes).first(converts ? 2 : 1);
  }

  void store_private_outputs() const {
    for_each_private([&](size_t tensor, DevicePointer memory, size_t bytes) {
      device::copy_async(gpu_->driver(), address_of(batch_.tensors[tensor].output), memory, bytes,
                         gpu_->stream());
    });
  }

  const std::shared_ptr<Gpu> gpu_;
  const std::shared_ptr<IpcMemory> memory_;
  const std::vector<int>& ranks_;  ///< global
  const int rank_;
  Backend& host_;
  GroupLevels& groups_;
  const Batch batch_;
  const IpcFacts facts_;
  const std::vector<size_t> output_bytes_;  ///< by tensor
  const std::vector<size_t> overlapping_;
  std::vector<IpcRound> rounds_;
  const size_t steps_;
  std::vector<Queued> done_;  ///< by step
  std::shared_ptr<device::PinnedMemory> neutral_;
  std::byte word_{};  ///< an exchange has no contents
  std::array<std::byte, device::kMaxSources> words_{};
  std::unique_ptr<Run> exchange_;
  size_t step_ = 0;
  bool has_begun_ = false;
};

}  // namespace

size_t ipc_exchanges(const std::vector<IpcRound>& rounds) {
  if (rounds.empty()) return 0;
  return rounds.size() + (rounds.back().reads_reduced ? 1 : 0) + 1;
}

bool ipc_can_move(const Operation& operation) {
  return !reduces(operation.kind) ||
         (operation.op != ReduceOp::adasum && device::has_reduce_kernel(operation.dtype));
}

std::unique_ptr<Mover> ipc_mover(IpcMoverFacts facts, Backend& host, GroupLevels& groups) {
  return std::make_unique<IpcMover>(std::move(facts), host, groups);
}

}  // namespace hvd::nccl
