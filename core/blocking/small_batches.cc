#include "core/blocking/small_batches.h"

#include <algorithm>
#include <utility>

#include "core/backend/host/batch_memory.h"
#include "core/backend/host/overlap.h"
#include "core/base/aligned_buffer.h"
#include "core/kernel/kernel.h"

namespace hvd {
namespace {

// For more, the two copies cost more than the executor's list of tensors (docs/decisions/0044).
constexpr size_t kMostPackedBytes = 4 * KiB;

uint32_t bit(Way way) { return uint32_t{1} << static_cast<int>(way); }

size_t bytes_of(const Batch& batch) {
  size_t bytes = 0;
  for (const BatchTensor& tensor : batch.tensors)
    bytes += tensor_bytes(tensor, batch.operation.dtype);
  return bytes;
}

/// The concatenation of all tensors as one task, without addresses.
TensorTask task_of(const Batch& batch) {
  const size_t element = element_bytes(batch.operation.dtype);
  return {.operation = batch.operation, .rows = bytes_of(batch) / element, .row_bytes = element};
}

class SmallRun final : public Run {
 public:
  SmallRun(Batch batch, const TensorTask& task, int rank)
      : batch_(std::move(batch)), task_(task), rank_(rank) {
    const BatchTensor& first = batch_.tensors.front();
    if (batch_.tensors.size() == 1 && first.output != nullptr) {
      task_.input = first.input;
      task_.output = first.output;
    } else {
      pack();
    }
  }

  void start(const Ways& ways, const Ways::Choice& choice) {
    way_ = choice.way;
    ways.start(choice.way, {.task = task_, .sequence = batch_.sequence, .plan = choice.plan},
               call_);
  }

  Progress advance() override {
    const Progress progress = hvd::advance(call_);
    if (progress == Progress::done && packed_.size() > 0) unpack();
    return progress;
  }
  Route route() const override {
    const auto* const phased = std::get_if<PhasedLinkCall>(&call_);
    return {.way = way_, .algorithm = phased ? phased->algorithm() : Algorithm::none};
  }

 private:
  /// Packs the inputs. A rank that has joined contributes neutral elements and drops the result.
  void pack() {
    packed_ = AlignedBuffer(task_.bytes());
    task_.input = task_.output = packed_.data();
    if (!gives(task_, rank_)) return;
    const Operation& operation = batch_.operation;
    std::byte* to = packed_.data();
    for (const BatchTensor& tensor : batch_.tensors) {
      const size_t bytes = tensor_bytes(tensor, batch_.operation.dtype);
      if (tensor.input != nullptr)
        kernel::copy(to, tensor.input, bytes);
      else
        kernel::fill_neutral(operation.op, operation.dtype, to,
                             bytes / element_bytes(operation.dtype));
      to += bytes;
    }
  }

  void unpack() {
    const std::byte* from = packed_.data();
    for (const BatchTensor& tensor : batch_.tensors) {
      const size_t bytes = tensor_bytes(tensor, batch_.operation.dtype);
      if (is_written(tensor)) kernel::copy(tensor.output, from, bytes);
      from += bytes;
    }
  }

  bool is_written(const BatchTensor& tensor) const {
    return tensor.output != nullptr &&
           !is_root_in_place(batch_.operation, rank_, tensor.input, tensor.output);
  }

  const Batch batch_;
  TensorTask task_;
  const int rank_;
  AlignedBuffer packed_{};  ///< empty: the task is the one tensor itself
  Way way_ = Way::executor;
  WayCall call_{};
};

}  // namespace

/// Excludes CMA, which needs an agreement between the ranks and tensors that are not packed.
SmallBatches::SmallBatches(const Ways::Rules& rules) : rules_(rules) {
  rules_.allowed &= ~bit(Way::cross_memory);
}

std::unique_ptr<Run> SmallBatches::start(HostBackend& backend, GroupLevels& groups, Batch& batch) {
  const Operation& operation = batch.operation;
  const bool is_sum =
      operation.kind == OperationKind::allreduce && operation.op != ReduceOp::adasum;
  if (!is_sum && operation.kind != OperationKind::broadcast) return nullptr;
  const TensorTask task = task_of(batch);
  if (task.rows == 0) return nullptr;
  if (batch.tensors.size() > 1 && task.bytes() > kMostPackedBytes) return nullptr;
  const Ways ways(groups, backend, rules_);
  const Ways::Choice choice = ways.choose(task);
  if (choice.way == Way::executor) return nullptr;
  auto run = std::make_unique<SmallRun>(std::move(batch), task, groups.all->rank());
  run->start(ways, choice);
  return run;
}

std::unique_ptr<HostBackend> host_backend(const Knobs& knobs, bool spare_cores) {
  Ways::Rules ways = Ways::rules_of(knobs, spare_cores);
  // If cores are oversubscribed, the executor is as fast in shared memory (docs/decisions/0044).
  if (!spare_cores) ways.allowed &= bit(Way::one_shot_links) | bit(Way::phased_links);
  return std::make_unique<HostBackend>(host_rules(knobs), nullptr,
                                       std::make_unique<SmallBatches>(ways));
}

}  // namespace hvd
