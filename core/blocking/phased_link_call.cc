#include "core/blocking/phased_link_call.h"

#include <algorithm>
#include <utility>

#include "core/backend/host/runs.h"
#include "core/base/assert.h"
#include "core/kernel/kernel.h"

namespace hvd {

PhasedLinkCall::PhasedLinkCall(Group& group, uint64_t sequence, std::shared_ptr<const Plan> plan,
                               const TensorTask& task)
    : group_(group), plan_(std::move(plan)), task_(task), ticket_{sequence, 0} {
  HVD_ASSERT(group.in_place() && suits(*plan_, group.size()));
  HVD_ASSERT(task.operation.prescale == 1.0 && task.bytes() == plan_->layout.bytes());
}

PhasedLinkCall::~PhasedLinkCall() {
  if (!done_) group_.return_loans();
}

bool PhasedLinkCall::suits(const Plan& plan, int ranks) {
  return plan.schedule.chunks == 1 && plan.layout.segments() == 1 &&
         !plan.schedule.phases.empty() && static_cast<size_t>(ranks) <= kernel::kMaxSources;
}

Progress PhasedLinkCall::advance() {
  for (; !all_passed(); pass()) {
    if (!published_ && !publish()) return pump();
    if (!see()) return pump();
    if (plan_->sends_changed[ticket_.unit] && !group_.sent(ticket_)) return pump();
    merge();
  }
  if (!group_.sent(last_ticket())) return pump();
  if (!plan_->unchanged.empty() && task_.output != task_.input)  // the root of a broadcast
    kernel::copy(task_.output, task_.input, task_.bytes());
  done_ = true;
  return Progress::done;
}

/// The data of this rank before this phase changes it.
ConstBytes PhasedLinkCall::content() const {
  return {plan_->is_fresh(0, ticket_.unit) ? task_.input : task_.output, task_.bytes()};
}

/// Returns false until peers have received enough of the earlier data.
bool PhasedLinkCall::publish() {
  if (!group_.reserve(ticket_, 0)) return false;
  const ConstBytes piece = content();
  SmallVector<Loan, 4> loans;
  for (const Send& send : phase().sends)
    loans.push_back({{send.peer, 0, piece.size()}, {&piece, 1}});
  group_.publish_loans(ticket_, {loans.data(), loans.size()});
  await_landings();
  published_ = true;
  return true;
}

/// Posts receives, directly into the output if the data replaces it and it is not being sent.
void PhasedLinkCall::await_landings() {
  const MutableBytes output(task_.output, task_.bytes());
  for (const Receive& receive : phase().receives) {
    const bool lands = receive.merge == Merge::replace && !plan_->sends_changed[ticket_.unit];
    group_.land(ticket_, {receive.peer, 0, output.size()}, lands ? output : MutableBytes());
  }
}

/// Returns false until the data of all peers of this phase has arrived.
bool PhasedLinkCall::see() {
  const auto& receives = phase().receives;
  while (seen_.size() < receives.size()) {
    const auto view = group_.view(ticket_, {receives[seen_.size()].peer, 0, task_.bytes()});
    if (!view) return false;
    seen_.push_back(view->data());
  }
  return true;
}

/// Merges the received data. A plan with one chunk has either one receive that replaces the chunk
/// or only receives that reduce.
void PhasedLinkCall::merge() {
  const auto& receives = phase().receives;
  if (receives.empty()) return;
  if (receives[0].merge == Merge::reduce) return reduce();
  HVD_ASSERT(receives.size() == 1);
  if (seen_[0] != task_.output)  // not received in place
    kernel::copy(task_.output, seen_[0], task_.bytes());
}

/// Reduces in order of rank like the executor, so the results are bit-identical.
void PhasedLinkCall::reduce() {
  const size_t place = place_among(phase().receives, group_.rank());
  seen_.push_back(content().data());
  std::rotate(seen_.begin() + place, seen_.end() - 1, seen_.end());
  const size_t elements = task_.bytes() / element_bytes(task_.operation.dtype);
  const auto [op, after] = combination_of(task_.operation.op, task_.operation.dtype,
                                          task_.operation.postscale, group_.size());
  kernel::ReduceOptions options;
  if (plan_->is_finished(0, ticket_.unit)) options.scaling = after;
  if (op == ReduceOp::average) {
    count_contributions(phase().receives, plan_->own_contributions[ticket_.unit][0], place,
                        counts_);
    options.counts = counts_;
  }
  kernel::reduce(op, task_.operation.dtype, task_.output, {seen_.data(), seen_.size()}, elements,
                 options);
}

/// Goes to the next phase.
void PhasedLinkCall::pass() {
  group_.release(ticket_);
  ++ticket_.unit;
  published_ = false;
  seen_.clear();
}

Progress PhasedLinkCall::pump() { return group_.pump() ? Progress::moved : Progress::waiting; }

}  // namespace hvd
