#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <optional>
#include <utility>

#include "core/backend/host/overlap.h"
#include "core/backend/nccl/mover.h"
#include "core/backend/nccl/script.h"
#include "core/kernel/kernel.h"

namespace hvd::nccl {
namespace {

/// Neutral elements whose bytes differ are copied to the GPU, and from there.
constexpr size_t kFillBytes = 64 * KiB;

/// The byte that a neutral element repeats; nullopt: its bytes differ.
std::optional<unsigned char> neutral_byte(const Operation& operation) {
  alignas(8) std::array<unsigned char, 8> element{};
  const size_t bytes = element_bytes(operation.dtype);
  kernel::fill_neutral(operation.op, operation.dtype, element.data(), 1);
  const auto differs = [&](unsigned char byte) { return byte != element[0]; };
  if (std::any_of(element.begin(), element.begin() + static_cast<ptrdiff_t>(bytes), differs))
    return std::nullopt;
  return element[0];
}

class NcclMover final : public Mover {
 public:
  NcclMover(std::shared_ptr<Gpu> gpu, Communicator& communicator, MoverFacts facts)
      : gpu_(std::move(gpu)),
        communicator_(communicator),
        batch_(std::move(facts.batch)),
        segment_bytes_(facts.segment_bytes),
        across_(std::move(facts.across)),
        facts_{.rank = facts.rank,
               .size = facts.size,
               .hosts = across_ ? across_->groups.all->size() : 1,
               .rows = std::move(facts.rows),
               .overlapping = {},
               .scratch_limit = facts.scratch_bytes} {
    facts_.overlapping = OverlapSearch().find(
        batch_, facts.rank, output_sizes(batch_, facts_.rows, facts.rank, facts.size));
  }

  Progress advance() override {
    switch (state_) {
      case State::memory:
        if (!has_memory()) return Progress::waiting;
        wait_for_tensors(batch_, gpu_->stream());
        return begin_round();
      case State::calls:
        if (!communicator_.settled()) return Progress::waiting;
        return round().share ? begin_share() : end_round();
      case State::share:
        return advance_share();
      case State::calls_after_share:
        if (!communicator_.settled()) return Progress::waiting;
        return end_round();
      case State::launched:
        communicator_.settled();  // reports the failure of another rank
        return result_->reached() ? Progress::done : Progress::launched;
    }
    HVD_ASSERT(false);
  }
  std::shared_ptr<const DevicePoint> result() const override { return result_; }
  bool waits_for_ranks() const override {
    return state_ == State::share && shares_.back()->waits_for_ranks();
  }
  void cancel() override {
    for (const auto& one : shares_) one->cancel();
    across_.reset();
  }

 private:
  enum class State : uint8_t { memory, calls, share, calls_after_share, launched };

  const Round& round() const { return script_.rounds[round_]; }

  /// Writes the script. Returns false while there is too little memory and work uses it.
  bool has_memory() {
    write_script();
    const bool fills =
        std::ranges::any_of(script_.rounds, [](const Round& one) { return !one.fills.empty(); });
    if (fills && !neutral_byte(batch_.operation) && !neutral_) {
      neutral_ = gpu_->take_pinned(kFillBytes, PinnedLimit::most);
      if (!neutral_) return false;
      fill_neutral();
    }
    if (script_.scratch_bytes <= gpu_->scratch_bytes()) return true;
    if (!gpu_->idle()) return false;
    const size_t needed = script_.scratch_bytes;
    gpu_->grow_scratch(std::min(std::bit_ceil(needed), std::max(needed, facts_.scratch_limit)));
    write_script();
    return true;
  }
  void write_script() {
    facts_.scratch = gpu_->scratch();
    script_ = script_of(batch_, facts_);
  }

  /// Queues the next round, or what follows the last one.
  Progress begin_round() {
    if (round_ == script_.rounds.size()) {
      copy(script_.after);
      result_ = gpu_->point(gpu_->stream());
      state_ = State::launched;
      return Progress::launched;
    }
    for (const Fill& fill : round().fills) store_neutral(fill);
    copy(round().before);
    communicator_.queue(round().calls, gpu_->stream());
    state_ = State::calls;
    return Progress::moved;
  }
  Progress end_round() {
    copy(round().after);
    ++round_;
    return begin_round();
  }

  // ---- across hosts

  /// Sums were scaled before, and are after they are gathered.
  Progress begin_share() {
    Operation operation = batch_.operation;
    if (operation.op == ReduceOp::average) operation.op = ReduceOp::sum;
    operation.prescale = operation.postscale = 1;
    Batch share{
        .sequence = batch_.sequence,
        .operation = operation,
        .part = {static_cast<uint32_t>(round_), static_cast<uint32_t>(script_.rounds.size())}};
    auto* const memory = static_cast<std::byte*>(memory_at(round().share->memory));
    const size_t elements = round().share->bytes / element_bytes(operation.dtype);
    share.tensors.push_back({.input = memory,
                             .output = memory,
                             .shape = {static_cast<int64_t>(elements)},
                             .ready = gpu_->point(gpu_->stream())});
    MoverFacts facts{.batch = std::move(share),
                     .rank = across_->groups.all->rank(),
                     .size = across_->groups.all->size(),
                     .segment_bytes = segment_bytes_};
    shares_.push_back(staged_mover(gpu_, *across_->host, across_->groups, std::move(facts)));
    state_ = State::share;
    return Progress::moved;
  }

  Progress advance_share() {
    const auto is_done = [](const auto& one) {  // its pinned memory may be needed
      return one->result() && one->advance() == Progress::done;
    };
    shares_.erase(shares_.begin(), std::find_if_not(shares_.begin(), shares_.end(), is_done));
    const Progress progress = shares_.back()->advance();
    if (progress != Progress::launched) return progress;
    shares_.back()->result()->delay(gpu_->stream());
    communicator_.queue(round().calls_after_share, gpu_->stream());
    state_ = State::calls_after_share;
    return Progress::moved;
  }

  void copy(const std::vector<Copy>& copies) const {
    for (const Copy& one : copies)
      gpu_->kernels().launch(one.kind, one.pieces, one.scaling, gpu_->stream());
  }

  void fill_neutral() const {
    const Operation& operation = batch_.operation;
    kernel::fill_neutral(operation.op, operation.dtype, neutral_->bytes().data(),
                         kFillBytes / element_bytes(operation.dtype));
  }
  /// Few calls: each copy doubles what is stored.
  void store_neutral(const Fill& fill) const {
    const device::Driver& driver = gpu_->driver();
    const device::StreamHandle stream = gpu_->stream();
    if (const auto byte = neutral_byte(batch_.operation))
      return device::fill_async(driver, fill.to, *byte, fill.bytes, stream);
    size_t stored = std::min(kFillBytes, fill.bytes);
    device::copy_async(driver, fill.to, neutral_->address(), stored, stream);
    for (size_t next = 0; stored < fill.bytes; stored += next) {
      next = std::min(stored, fill.bytes - stored);
      device::copy_async(driver, fill.to + stored, fill.to, next, stream);
    }
  }

  const std::shared_ptr<Gpu> gpu_;
  Communicator& communicator_;
  const Batch batch_;
  const size_t segment_bytes_;
  std::optional<AcrossHosts> across_;
  ScriptFacts facts_;
  Script script_;
  std::vector<std::unique_ptr<Mover>> shares_;  ///< of the last rounds, whose work may be queued
  std::shared_ptr<device::PinnedMemory> neutral_;
  std::shared_ptr<const DevicePoint> result_;
  size_t round_ = 0;
  State state_ = State::memory;
};

}  // namespace

std::unique_ptr<Mover> nccl_mover(std::shared_ptr<Gpu> gpu, Communicator& communicator,
                                  MoverFacts facts) {
  return std::make_unique<NcclMover>(std::move(gpu), communicator, std::move(facts));
}

void wait_for_tensors(const Batch& batch, device::StreamHandle stream) {
  std::vector<const DevicePoint*> seen;  // few: tensors of one submission share a point
  for (const BatchTensor& tensor : batch.tensors) {
    const DevicePoint* const point = tensor.ready.get();
    if (point == nullptr || std::ranges::find(seen, point) != seen.end()) continue;
    seen.push_back(point);
    point->delay(stream);
  }
}

Batch::Part part_of(PartOfBatch part) { return {static_cast<uint32_t>(part), kPartsOfBatch}; }

Batch::Part part_of_meeting(MeetingPart part) {
  static_assert(static_cast<uint32_t>(PartOfBatch::meeting) == 0);
  return {static_cast<uint32_t>(part), kPartsOfBatch * kMeetingParts};
}

Batch::Part part_of_segment(const Batch::Part& whole, size_t index, size_t segments) {
  const auto count = static_cast<uint32_t>(segments);
  const uint32_t data = static_cast<uint32_t>(PartOfBatch::data) * whole.count + whole.index;
  return {data * count + static_cast<uint32_t>(index), kPartsOfBatch * whole.count * count};
}

}  // namespace hvd::nccl
