// Allreduce, also in levels, reducescatter and broadcast: runs whose passes are known at the start.
#include <algorithm>
#include <utility>
#include <vector>

#include "core/backend/host/batch_memory.h"
#include "core/backend/host/pass_sequence.h"
#include "core/backend/host/runs.h"

namespace hvd {
namespace {

class FixedRun final : public Run {
 public:
  FixedRun(const Batch& batch, uint32_t passes) : passes_(batch, passes) {}

  PassSequence& passes() { return passes_; }
  /// Keeps additional memory of the passes alive.
  void keep(std::vector<AlignedBuffer> memory) { memory_ = std::move(memory); }
  Progress advance() override { return passes_.advance(); }
  Route route() const override { return passes_.route(); }

 private:
  std::vector<AlignedBuffer> memory_;
  PassSequence passes_;
};

/// Returns the reduction of a batch without the final scaling.
Work reduction(const Batch& batch, GatherList input, GatherList output) {
  Work work;
  work.input = std::move(input);
  work.output = std::move(output);
  work.dtype = batch.operation.dtype;
  work.op =
      combination_of(batch.operation.op, batch.operation.dtype, batch.operation.postscale, 1).op;
  work.prescale = batch.operation.prescale;
  return work;
}

/// Adds the final scaling to `work`, the last reduction of a batch over `size` ranks.
void finish(Work& work, const Batch& batch, int size) {
  const auto after =
      combination_of(batch.operation.op, batch.operation.dtype, batch.operation.postscale, size)
          .after;
  work.divisor = after.divisor;
  work.postscale = after.factor;
}

/// Returns nearly equal parts of `bytes` in whole cache lines, one per rank of a host.
Blocks parts_of(size_t bytes, int count) {
  Blocks parts;
  for (size_t begin = 0; static_cast<int>(parts.size()) < count; begin += parts.back()) {
    const size_t lines = (bytes + kCacheLine - 1) / kCacheLine;
    const Rows share = rows_of(lines, static_cast<int>(parts.size()), count);
    parts.push_back(std::min(bytes - begin, share.count * kCacheLine));
  }
  return parts;
}

}  // namespace

Combination combination_of(ReduceOp op, DType dtype, double postscale, int size) {
  if (op == ReduceOp::average && !is_floating(dtype))
    return {ReduceOp::sum, {.factor = postscale, .divisor = size}};
  return {op, {.factor = postscale}};
}

std::unique_ptr<Run> allreduce_run(Plans& plans, Group& group, const Batch& batch,
                                   const AllreduceRules& rules) {
  ReducedTensors tensors(batch);
  const size_t bytes = tensors.outputs.bytes();
  Work work = reduction(batch, std::move(tensors.inputs), std::move(tensors.outputs));
  finish(work, batch, group.size());
  auto run = std::make_unique<FixedRun>(batch, 1);
  run->keep(std::move(tensors.stand_ins));
  run->passes().add(plans, group, {OperationKind::allreduce, rules}, {bytes}, std::move(work));
  return run;
}

std::unique_ptr<Run> allreduce_in_levels(Plans& plans, GroupLevels& groups, const Batch& batch,
                                         const AllreduceRules& rules) {
  auto run = std::make_unique<FixedRun>(batch, 3);
  ReducedTensors tensors(batch);
  run->keep(std::move(tensors.stand_ins));
  Group &host = *groups.host, &across = *groups.across;
  const auto place = static_cast<size_t>(host.rank());
  const Blocks parts = parts_of(tensors.outputs.bytes(), host.size());
  size_t begin = 0;
  for (size_t before = 0; before < place; ++before) begin += parts[before];
  const GatherList own = tensors.outputs.part(begin, parts[place]);
  const GatherList own_of_all = only_block(parts, place, own);

  Work down = reduction(batch, tensors.inputs, own_of_all);
  down.plan = plans.plan_of({OperationKind::reducescatter}, host, batch.operation.dtype, parts);
  run->passes().add(host, std::move(down));

  Work over = reduction(batch, own, own);
  over.prescale = 1.0;
  finish(over, batch, groups.all->size());
  over.plan = plans.plan_of({OperationKind::allreduce, rules}, across, batch.operation.dtype,
                            {own.bytes()});
  run->passes().add(across, std::move(over));

  Work up;
  up.input = own_of_all;
  up.output = tensors.outputs;
  up.dtype = batch.operation.dtype;
  up.plan = plans.plan_of({OperationKind::allgather}, host, batch.operation.dtype, parts);
  run->passes().add(host, std::move(up));
  return run;
}

// The virtual buffer lists, rank by rank, the rows of all tensors for that rank.
std::unique_ptr<Run> reducescatter_run(Plans& plans, Group& group, const Batch& batch) {
  GatherList input, own;
  Blocks blocks(static_cast<size_t>(group.size()));
  for (int rank = 0; rank < group.size(); ++rank) {
    for (const BatchTensor& tensor : batch.tensors) {
      const Rows rows = rows_of(static_cast<size_t>(tensor.shape[0]), rank, group.size());
      const size_t row = row_bytes(tensor, batch.operation.dtype);
      add_input(input, tensor.input + rows.first * row, rows.count * row);
      if (rank == group.rank()) own.add(tensor.output, rows.count * row);
      blocks[static_cast<size_t>(rank)] += rows.count * row;
    }
  }
  auto run = std::make_unique<FixedRun>(batch, 1);
  Work work = reduction(batch, input, only_block(blocks, static_cast<size_t>(group.rank()), own));
  finish(work, batch, group.size());
  run->passes().add(plans, group, {OperationKind::reducescatter}, blocks, std::move(work));
  return run;
}

std::unique_ptr<Run> broadcast_run(Plans& plans, Group& group, const Batch& batch) {
  auto run = std::make_unique<FixedRun>(batch, 1);
  Work work;
  work.dtype = batch.operation.dtype;
  for (const BatchTensor& tensor : batch.tensors) {
    const size_t bytes = tensor_bytes(tensor, batch.operation.dtype);
    work.output.add(tensor.output, bytes);
    if (batch.operation.root == group.rank()) add_input(work.input, tensor.input, bytes);
  }
  if (batch.operation.root != group.rank()) work.input.add_absent(work.output.bytes());
  const Blocks bytes{work.output.bytes()};
  run->passes().add(plans, group, {.kind = OperationKind::broadcast, .root = batch.operation.root},
                    bytes, std::move(work));
  return run;
}

}  // namespace hvd
