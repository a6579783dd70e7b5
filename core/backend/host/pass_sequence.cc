#include "core/backend/host/pass_sequence.h"

#include <utility>

#include "core/backend/host/carrier.h"
#include "core/base/assert.h"
#include "core/group/staging.h"

namespace hvd {

PassSequence::PassSequence(const Batch& batch, uint32_t most_passes)
    : batch_(batch.sequence),
      units_apart_((kMaxUnit + 1) / batch.part.count / most_passes),
      first_unit_((kMaxUnit + 1) / batch.part.count * batch.part.index) {}

void PassSequence::add(Group& group, Work work) {
  const Algorithm algorithm = work.plan->schedule.algorithm;
  passes_.push_back({.group = &group, .work = std::move(work), .algorithm = algorithm});
}

void PassSequence::add(Plans& plans, Group& group, const PassKind& kind, const Blocks& blocks,
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

Progress PassSequence::advance() {
  if (!executor_ && carried_ == nullptr) {
    if (all_started()) return Progress::done;
    start_next();
  }
  const Progress progress = advance_current();
  if (progress != Progress::done) return progress;
  return all_started() ? Progress::done : Progress::moved;
}

Route PassSequence::route() const {
  if (passes_.empty()) return {};
  const bool under_way = executor_.has_value() || carried_ != nullptr;
  const size_t current = under_way || all_started() ? started_ - 1 : started_;
  const Pass& pass = passes_[current];
  return pass.carried ? pass.carried->route() : Route{.algorithm = pass.algorithm};
}

Progress PassSequence::advance_current() {
  if (carried_ != nullptr) {
    const Progress progress = carried_->advance();
    if (progress == Progress::done) carried_ = nullptr;
    return progress;
  }
  const Progress progress = executor_->advance();
  if (progress != Progress::done) return progress;
  units_of_last_ = executor_->units();
  executor_.reset();
  return progress;
}

void PassSequence::start_next() {
  HVD_ASSERT(units_of_last_ <= units_apart_);  // otherwise unit numbers of two passes collide
  Pass& pass = passes_[started_];
  if (pass.carried) {
    ++started_;
    carried_ = pass.carried.get();
    return;
  }
  pass.work.batch = batch_;
  pass.work.first_unit = first_unit_ + static_cast<uint32_t>(started_) * units_apart_;
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

void add_gather(PassSequence& passes, Plans& plans, Group& group,
                const std::vector<GatherList>& blocks, const GatherList& input, DType dtype) {
  Work work;
  work.dtype = dtype;
  Blocks bytes;
  for (const GatherList& block : blocks) {
    bytes.push_back(block.bytes());
    work.output.add(block);
  }
  work.input = only_block(bytes, static_cast<size_t>(group.rank()), input);
  passes.add(plans, group, {OperationKind::allgather}, bytes, std::move(work));
}

}  // namespace hvd
