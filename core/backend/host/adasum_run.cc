// Adasum by pairs in levels: rank and rank ^ 1, then rank ^ 2, rank ^ 4, ...
#include <algorithm>
#include <bit>
#include <utility>

#include "core/backend/host/batch_memory.h"
#include "core/backend/host/pass_sequence.h"
#include "core/backend/host/runs.h"
#include "core/base/assert.h"
#include "core/collective/adasum.h"
#include "core/kernel/kernel.h"

namespace hvd {
namespace {

// Limits the arithmetic per call of advance(). Products are summed block by block from the start of
// a stretch, so the result of a tensor does not depend on the other tensors of the batch.
constexpr size_t kBlockElements = 16 * 1024;
constexpr size_t kElementsPerCall = 4 * kBlockElements;

/// Visits stretches of tensors block by block, some blocks per call.
class BlockWalk {
 public:
  /// Calls `visit(tensor, begin, count)` with `begin` relative to the start of
  /// `stretches[tensor]`. Returns true after the last block; the next call starts again.
  template <class Visit>
  bool advance(const std::vector<Stretch>& stretches, Visit visit) {
    for (size_t elements = 0; elements < kElementsPerCall;) {
      while (tensor_ < stretches.size() && begin_ == stretches[tensor_].size()) {
        ++tensor_;
        begin_ = 0;
      }
      if (tensor_ == stretches.size()) {
        tensor_ = 0;
        return true;
      }
      const size_t count = std::min(kBlockElements, stretches[tensor_].size() - begin_);
      visit(tensor_, begin_, count);
      begin_ += count;
      elements += count;
    }
    return false;
  }

 private:
  size_t tensor_ = 0;
  size_t begin_ = 0;
};

class AdasumRun final : public Run {
 public:
  AdasumRun(Plans& plans, Group& group, const Batch& batch)
      : plans_(plans),
        group_(group),
        dtype_(batch.operation.dtype),
        prescale_(batch.operation.prescale),
        postscale_(batch.operation.postscale),
        tensors_(batch),
        levels_(std::countr_zero(static_cast<unsigned>(group.size()))),
        passes_(batch, 2 * static_cast<uint32_t>(levels_) + 1) {
    HVD_ASSERT(levels_ > 0 && std::has_single_bit(static_cast<unsigned>(group.size())));
    HVD_ASSERT(is_floating(dtype_));
    kept_ = stretches_of(group.rank(), 0);
  }

  Progress advance() override {
    switch (step_) {
      case Step::copy:
        if (copy_some()) begin_level();
        return Progress::moved;
      case Step::exchange:
        return after_pass(Step::multiply);
      case Step::multiply:
        if (multiply_some()) add_products_up();
        return Progress::moved;
      case Step::add_up:
        return after_pass(Step::combine);
      case Step::combine:
        if (combine_some()) ++level_ < levels_ ? begin_level() : gather();
        return Progress::moved;
      case Step::gather:
        return passes_.advance();
    }
    HVD_ASSERT(false);
  }

 private:
  /// copy; then exchange, multiply, add_up and combine for each level; then gather.
  enum class Step : uint8_t { copy, exchange, multiply, add_up, combine, gather };

  bool is_lower() const { return (group_.rank() >> level_ & 1) == 0; }
  /// The part of every tensor that `rank` holds after `levels` levels.
  std::vector<Stretch> stretches_of(int rank, int levels) const {
    std::vector<Stretch> stretches;
    for (const auto& tensor : tensors_.tensors)
      stretches.push_back(adasum_stretch(rank, levels, tensor.bytes / element_bytes(dtype_)));
    return stretches;
  }
  /// An element of the current vector, which is stored in the outputs.
  std::byte* element(size_t tensor, size_t index) const {
    return tensors_.tensors[tensor].output + index * element_bytes(dtype_);
  }
  GatherList memory_of(const std::vector<Stretch>& stretches) const {
    GatherList list;
    for (size_t i = 0; i < stretches.size(); ++i)
      list.add(element(i, stretches[i].begin), stretches[i].size() * element_bytes(dtype_));
    return list;
  }

  bool copy_some() {
    return walk_.advance(kept_, [&](size_t tensor, size_t begin, size_t count) {
      const std::byte* input = tensors_.tensors[tensor].input + begin * element_bytes(dtype_);
      kernel::scale(dtype_, element(tensor, begin), input, {.factor = prescale_}, count);
    });
  }

  /// Exchanges halves: each rank of the pair receives the part that it keeps of the other's vector.
  void begin_level() {
    step_ = Step::exchange;
    products_.assign(tensors_.tensors.size(), {});
    const int partner = group_.rank() ^ 1 << level_;
    kept_ = stretches_of(group_.rank(), level_ + 1);
    const GatherList given = memory_of(stretches_of(partner, level_ + 1));
    const size_t bytes = memory_of(kept_).bytes();
    if (received_.size() < bytes) received_ = AlignedBuffer(bytes);
    GatherList room;
    room.add(received_.data(), bytes);
    std::vector<size_t> blocks = {given.bytes(), bytes};
    if (!is_lower()) std::swap(blocks[0], blocks[1]);
    Work work;
    work.dtype = dtype_;
    Schedule schedule = pair_exchange(group_.rank(), partner);
    work.input = only_block(blocks, is_lower() ? 0 : 1, given);
    work.output = only_block(blocks, is_lower() ? 1 : 0, room);
    Layout layout = blocks_for(group_, schedule, blocks, dtype_);
    work.plan = make_plan(std::move(schedule), std::move(layout));
    passes_.add(group_, std::move(work));
  }

  Progress after_pass(Step next) {
    const Progress progress = passes_.advance();
    if (progress != Progress::done) return progress;
    step_ = next;
    return Progress::moved;
  }

  /// Visits the part that this rank keeps: `visit(tensor, ours, theirs, count)`.
  template <class Visit>
  bool walk_kept(Visit visit) {
    const bool done = walk_.advance(kept_, [&](size_t tensor, size_t begin, size_t count) {
      std::byte* ours = element(tensor, kept_[tensor].begin + begin);
      visit(tensor, ours, received_.data() + walked_bytes_, count);
      walked_bytes_ += count * element_bytes(dtype_);
    });
    if (done) walked_bytes_ = 0;
    return done;
  }

  bool multiply_some() {
    return walk_kept([&](size_t tensor, std::byte* ours, std::byte* theirs, size_t count) {
      const auto [a, b] = in_order(ours, theirs);
      add_products(products_[tensor], dtype_, a, b, count);
    });
  }
  bool combine_some() {
    const bool last = level_ + 1 == levels_;
    return walk_kept([&](size_t tensor, std::byte* ours, std::byte* theirs, size_t count) {
      const auto [a, b] = in_order(ours, theirs);
      adasum_combine(dtype_, ours, a, b, adasum_factors(products_[tensor]), count);
      if (last) kernel::scale(dtype_, ours, ours, {.factor = postscale_}, count);
    });
  }
  /// Returns the vector of the lower ranks first, so that all ranks use the same order.
  std::pair<std::byte*, std::byte*> in_order(std::byte* ours, std::byte* theirs) const {
    return is_lower() ? std::pair(ours, theirs) : std::pair(theirs, ours);
  }

  /// Sums the products over the ranks that share the two vectors, which have consecutive numbers.
  /// Recursive doubling gives all of them identical bits, over shared memory and links.
  void add_products_up() {
    step_ = Step::add_up;
    const int sharing = 2 << level_;
    const int first = group_.rank() / sharing * sharing;
    Work work;
    work.dtype = DType::float64;
    work.output.add(reinterpret_cast<std::byte*>(products_.data()),
                    products_.size() * sizeof(AdasumProducts));
    work.input = work.output;
    Schedule schedule = recursive_doubling_allreduce(group_.rank() - first, sharing);
    for (Phase& phase : schedule.phases) {
      for (Send& send : phase.sends) send.peer += first;
      for (Receive& receive : phase.receives) receive.peer += first;
    }
    Layout layout = split_for(group_, schedule, work.output.bytes(), work.dtype);
    work.plan = make_plan(std::move(schedule), std::move(layout));
    passes_.add(group_, std::move(work));
  }

  void gather() {
    step_ = Step::gather;
    std::vector<GatherList> blocks;
    for (int rank = 0; rank < group_.size(); ++rank)
      blocks.push_back(memory_of(stretches_of(rank, levels_)));
    add_gather(passes_, plans_, group_, blocks, blocks[static_cast<size_t>(group_.rank())], dtype_);
  }

  Plans& plans_;
  Group& group_;
  DType dtype_;
  double prescale_;
  double postscale_;
  ReducedTensors tensors_;
  int levels_;
  Step step_ = Step::copy;
  int level_ = 0;
  std::vector<Stretch> kept_;             // [tensor] the part that this rank holds or combines
  AlignedBuffer received_;                // stretches of the other vector, contiguous
  std::vector<AdasumProducts> products_;  // [tensor]
  BlockWalk walk_;
  size_t walked_bytes_ = 0;  // of received_
  PassSequence passes_;      // destroyed first: links may still send from the memory above
};

}  // namespace

std::unique_ptr<Run> adasum_run(Plans& plans, Group& group, const Batch& batch) {
  return std::make_unique<AdasumRun>(plans, group, batch);
}

}  // namespace hvd
