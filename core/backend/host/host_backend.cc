#include "core/backend/host/host_backend.h"

#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "core/base/assert.h"
#include "core/collective/executor.h"
#include "core/collective/selector.h"
#include "core/kernel/kernel.h"

namespace hvd {
namespace {

Run::Progress progress_of(Executor::Progress progress) {
  switch (progress) {
    case Executor::Progress::moved:
      return Run::Progress::moved;
    case Executor::Progress::waiting:
      return Run::Progress::waiting;
    case Executor::Progress::done:
      return Run::Progress::done;
  }
  HVD_ASSERT(false);
}

size_t tensor_bytes(const BatchTensor& tensor, DType dtype) {
  return static_cast<size_t>(element_count(tensor.shape)) * element_bytes(dtype);
}

GroupFacts facts_of(const Group& group) {
  return {.rank = group.rank(), .size = group.size(), .shared_memory = group.shared_memory()};
}

// Average is the sum divided by the number of ranks. For integers the product must not fall below a
// whole number by rounding (49 * (1 / 49.) is 0.9999...), so the factor is the next one above:
// right up to 2^51.
double factor_after(const Batch& batch, int size) {
  if (batch.op != ReduceOp::average) return batch.postscale;
  const double share = 1.0 / size;
  const bool nudge = !is_floating(batch.dtype) && size > 1;
  return batch.postscale * (nudge ? std::nextafter(share, 1.0) : share);
}

/// Allreduce and broadcast: one pass.
class OnePassRun final : public Run {
 public:
  OnePassRun(Group& group, const Batch& batch, AlgorithmChoice algorithm)
      : executor_(group, make_work(group, batch, algorithm)) {}
  Progress advance() override { return progress_of(executor_.advance()); }

 private:
  Work make_work(const Group& group, const Batch& batch, AlgorithmChoice algorithm) {
    Work work;
    work.batch = batch.sequence;
    work.dtype = batch.dtype;
    const bool reads = batch.transfer == Transfer::allreduce || batch.root == group.rank();
    for (const BatchTensor& tensor : batch.tensors) add(work, tensor, batch, reads);
    const size_t bytes = work.output.bytes();
    if (batch.transfer == Transfer::allreduce) {
      work.schedule = choose_allreduce(facts_of(group), bytes, algorithm);
      work.op = batch.op == ReduceOp::average ? ReduceOp::sum : batch.op;
      work.prescale = batch.prescale;
      work.postscale = factor_after(batch, group.size());
    } else {
      work.schedule = choose_broadcast(facts_of(group), bytes, batch.root);
    }
    work.layout =
        Layout::split(bytes, group.unit_bytes(), work.schedule.chunks, element_bytes(batch.dtype));
    return work;
  }

  void add(Work& work, const BatchTensor& tensor, const Batch& batch, bool reads) {
    const size_t bytes = tensor_bytes(tensor, batch.dtype);
    std::byte* output = tensor.output;
    const std::byte* input = tensor.input;
    if (output == nullptr) {  // this rank has joined: nobody looks at its result
      const AlignedBuffer& made = stand_ins_.emplace_back(bytes);
      kernel::fill_neutral(batch.op, batch.dtype, made.data(), bytes / element_bytes(batch.dtype));
      output = made.data();
      input = output;
    }
    work.output.add(output, bytes);
    if (reads)
      work.input.add(const_cast<std::byte*>(input), bytes);  // the executor only reads it
    else
      work.input.add_absent(bytes);
  }

  std::vector<AlignedBuffer> stand_ins_;
  Executor executor_;
};

/// Allgather: the ranks tell each other their first dimensions, the outputs are allocated, then
/// data moves.
class GatherRun final : public Run {
 public:
  GatherRun(Group& group, Batch batch)
      : group_(group),
        batch_(std::move(batch)),
        rows_(batch_.tensors.size() * static_cast<size_t>(group.size())) {
    const size_t own = batch_.tensors.size() * static_cast<size_t>(group.rank());
    for (size_t i = 0; i < batch_.tensors.size(); ++i) rows_[own + i] = batch_.tensors[i].shape[0];
    executor_.emplace(group_, sizes_work());
  }

  Progress advance() override {
    const Progress progress = progress_of(executor_->advance());
    if (progress != Progress::done || data_pass_) return progress;
    data_pass_ = true;
    allocate_outputs();
    executor_.emplace(group_, data_work());
    return Progress::moved;
  }

 private:
  size_t ranks() const { return static_cast<size_t>(group_.size()); }
  int64_t rows(size_t rank, size_t tensor) const {
    return rows_[rank * batch_.tensors.size() + tensor];
  }
  size_t row_bytes(size_t tensor) const {
    const Shape& shape = batch_.tensors[tensor].shape;
    return static_cast<size_t>(element_count(Shape(shape.begin() + 1, shape.end()))) *
           element_bytes(batch_.dtype);
  }
  size_t part_bytes(size_t rank, size_t tensor) const {
    return static_cast<size_t>(rows(rank, tensor)) * row_bytes(tensor);
  }

  Work sizes_work() {
    Work work;
    work.batch = batch_.sequence;
    const size_t block = batch_.tensors.size() * sizeof(int64_t);
    work.schedule = choose_allgather(facts_of(group_), block * ranks());
    work.layout = Layout::blocks(std::vector<size_t>(ranks(), block), group_.unit_bytes(),
                                 work.schedule.room_chunks, 8);
    work.output.add(reinterpret_cast<std::byte*>(rows_.data()), rows_.size() * sizeof(int64_t));
    work.input = work.output;
    return work;
  }

  void allocate_outputs() {
    for (size_t i = 0; i < batch_.tensors.size(); ++i) {
      Gathered& gathered = *batch_.tensors[i].gathered;
      gathered.shape = batch_.tensors[i].shape;
      gathered.shape[0] = 0;
      for (size_t rank = 0; rank < ranks(); ++rank) gathered.shape[0] += rows(rank, i);
      gathered.memory = AlignedBuffer(static_cast<size_t>(gathered.shape[0]) * row_bytes(i));
    }
  }

  // The virtual buffer lists rank by rank what each contributes to all tensors; the pieces lie in
  // the outputs.
  Work data_work() {
    Work work;
    work.batch = batch_.sequence;
    work.first_unit = executor_->units();
    work.dtype = batch_.dtype;
    std::vector<size_t> blocks(ranks());
    std::vector<size_t> filled(batch_.tensors.size());
    for (size_t rank = 0; rank < ranks(); ++rank) {
      for (size_t i = 0; i < batch_.tensors.size(); ++i) {
        std::byte* piece = batch_.tensors[i].gathered->memory.data() + filled[i];
        const size_t bytes = part_bytes(rank, i);
        work.output.add(piece, bytes);
        if (rank == static_cast<size_t>(group_.rank()))
          work.input.add(const_cast<std::byte*>(batch_.tensors[i].input), bytes);
        else
          work.input.add_absent(bytes);
        filled[i] += bytes;
        blocks[rank] += bytes;
      }
    }
    work.schedule = choose_allgather(facts_of(group_), work.output.bytes());
    work.layout = Layout::blocks(std::move(blocks), group_.unit_bytes(), work.schedule.room_chunks,
                                 element_bytes(batch_.dtype));
    return work;
  }

  Group& group_;
  Batch batch_;
  std::vector<int64_t> rows_;  // [rank, tensor]
  std::optional<Executor> executor_;
  bool data_pass_ = false;
};

}  // namespace

std::unique_ptr<Run> HostBackend::start(GroupLevels& groups, Batch batch) {
  if (batch.transfer == Transfer::allgather)
    return std::make_unique<GatherRun>(*groups.all, std::move(batch));
  return std::make_unique<OnePassRun>(*groups.all, batch, algorithm_);
}

}  // namespace hvd
