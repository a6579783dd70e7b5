#include "core/backend/host/passes.h"

#include <utility>

#include "core/backend/host/carrier.h"
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

void Passes::add(Plans& plans, Group& group, const PassKind& kind, const Blocks& blocks,
                 Work work) {
  if (Carrier* const carrier = plans.carrier()) {
    Pass carried{.group = &group};
    carried.carried = carrier->start(group, kind, blocks, std::move(work));
    passes_.push_back(std::move(carried));
  } else {
    work.plan = plans.plan_of(kind, group, work.dtype, blocks);
    add(group, std::move(work));
  }
}

Run::Progress Passes::advance() {
  if (!executor_ && carried_ == nullptr) {
    if (all_started()) return Run::Progress::done;
    start_next();
  }
  const Run::Progress progress = advance_current();
  if (progress != Run::Progress::done) return progress;
  return all_started() ? Run::Progress::done : Run::Progress::moved;
}

Run::Progress Passes::advance_current() {
  if (carried_ != nullptr) {
    const Run::Progress progress = carried_->advance();
    if (progress == Run::Progress::done) carried_ = nullptr;
    return progress;
  }
  const Run::Progress progress = progress_of(executor_->advance());
  if (progress != Run::Progress::done) return progress;
  units_of_last_ = executor_->units();
  executor_.reset();
  return progress;
}

void Passes::start_next() {
  HVD_ASSERT(units_of_last_ <= units_apart_);  // else two passes would use the same numbers
  Pass& pass = passes_[started_];
  if (pass.carried) {
    ++started_;
    carried_ = pass.carried.get();
    return;
  }
  pass.work.batch = batch_;
  pass.work.first_unit = static_cast<uint32_t>(started_) * units_apart_;
  ++started_;
  executor_.emplace(*pass.group, std::move(pass.work));
}

GatherList only_block(std::span<const size_t> block_bytes, size_t present,
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

void add_gather(Passes& passes, Plans& plans, Group& group, const std::vector<GatherList>& blocks,
                const GatherList& input, DType dtype) {
  Work work;
  work.dtype = dtype;
  Blocks bytes;
  for (const GatherList& block : blocks) {
    bytes.push_back(block.bytes());
    work.output.add(block);
  }
  work.input = only_block(bytes, static_cast<size_t>(group.rank()), input);
  passes.add(plans, group, {Transfer::allgather}, bytes, std::move(work));
}

}  // namespace hvd
