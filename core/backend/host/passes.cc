#include "core/backend/host/passes.h"

#include <utility>

#include "core/base/assert.h"
#include "core/group/staging.h"

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

}  // namespace

Passes::Passes(uint64_t batch, uint32_t most_passes)
    : batch_(batch), units_apart_((kMaxUnit + 1) / most_passes) {}

void Passes::add(Group& group, Work work) { passes_.push_back({&group, std::move(work)}); }

Run::Progress Passes::advance() {
  if (!executor_) {
    if (all_started()) return Run::Progress::done;
    start_next();
  }
  const Run::Progress progress = progress_of(executor_->advance());
  if (progress != Run::Progress::done) return progress;
  units_of_last_ = executor_->units();
  executor_.reset();
  return all_started() ? Run::Progress::done : Run::Progress::moved;
}

void Passes::start_next() {
  HVD_ASSERT(units_of_last_ <= units_apart_);  // else two passes would use the same numbers
  Pass& pass = passes_[started_];
  pass.work.batch = batch_;
  pass.work.first_unit = static_cast<uint32_t>(started_) * units_apart_;
  ++started_;
  executor_.emplace(*pass.group, std::move(pass.work));
}

GroupFacts facts_of(const Group& group) {
  return {.rank = group.rank(), .size = group.size(), .shared_memory = group.shared_memory()};
}

void lay_out_blocks(Work& work, std::vector<size_t> block_bytes, const Group& group) {
  work.layout = Layout::blocks(std::move(block_bytes), group.unit_bytes(),
                               work.schedule.room_chunks, element_bytes(work.dtype));
}

GatherList only_block(const std::vector<size_t>& block_bytes, size_t present,
                      const GatherList& memory) {
  GatherList list;
  for (size_t i = 0; i < block_bytes.size(); ++i) {
    if (i == present)
      list.add(memory);
    else
      list.add_absent(block_bytes[i]);
  }
  return list;
}

void lay_out_split(Work& work, const Group& group) {
  work.layout = Layout::split(work.output.bytes(), group.unit_bytes(), work.schedule.chunks,
                              element_bytes(work.dtype));
}

void add_gather(Passes& passes, Group& group, const std::vector<GatherList>& blocks,
                const GatherList& input, DType dtype) {
  Work work;
  work.dtype = dtype;
  std::vector<size_t> bytes;
  for (const GatherList& block : blocks) {
    bytes.push_back(block.bytes());
    work.output.add(block);
  }
  work.input = only_block(bytes, static_cast<size_t>(group.rank()), input);
  work.schedule = choose_allgather(facts_of(group), work.output.bytes());
  lay_out_blocks(work, std::move(bytes), group);
  passes.add(group, std::move(work));
}

}  // namespace hvd
