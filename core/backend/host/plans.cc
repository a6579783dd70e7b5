#include "core/backend/host/plans.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/base/assert.h"
#include "core/base/bytes.h"

namespace hvd {
namespace {

// If one phase reduces everything, a rank reads its sent data again. Two segments of it and of the
// received data fit into the cache of a core.
constexpr size_t kOneShotSegmentBytes = 128 * KiB;

bool reduces_in_one_phase(const Schedule& schedule) {
  if (schedule.phases.size() != 1) return false;
  const auto& receives = schedule.phases[0].receives;
  return !receives.empty() && receives[0].merge == Merge::reduce;
}

Schedule schedule_of(const PassKind& kind, const GroupFacts& group, const Blocks& blocks) {
  switch (kind.kind) {
    case OperationKind::allreduce:
      return choose_allreduce(group, blocks[0], kind.rules);
    case OperationKind::allgather:
      return choose_allgather(group, std::reduce(blocks.begin(), blocks.end()));
    case OperationKind::broadcast:
      return choose_broadcast(group, blocks[0], kind.root);
    case OperationKind::alltoall:
      return choose_alltoall(group);
    case OperationKind::reducescatter:
      return choose_reducescatter(group);
    default:
      break;
  }
  HVD_ASSERT(false);
}

std::shared_ptr<const Plan> make(const PassKind& kind, const Group& group, DType dtype,
                                 const Blocks& blocks) {
  Schedule schedule = schedule_of(kind, facts_of(group), blocks);
  const bool whole = kind.kind == OperationKind::allreduce || kind.kind == OperationKind::broadcast;
  Layout layout = whole ? split_for(group, schedule, blocks[0], dtype)
                        : blocks_for(group, schedule, blocks, dtype);
  return make_plan(std::move(schedule), std::move(layout));
}

}  // namespace

GroupFacts facts_of(const Group& group) {
  return {.rank = group.rank(),
          .size = group.size(),
          .shared_memory = group.shared_memory(),
          .on_one_machine = group.on_one_machine(),
          .ranks_a_core = group.ranks_a_core()};
}

Layout split_for(const Group& group, const Schedule& schedule, size_t bytes, DType dtype) {
  const bool reads_again = group.shared_memory() && reduces_in_one_phase(schedule);
  const size_t unit = group.unit_bytes();
  return Layout::split(bytes, reads_again ? std::min(unit, kOneShotSegmentBytes) : unit,
                       schedule.chunks, element_bytes(dtype));
}

Layout blocks_for(const Group& group, const Schedule& schedule, std::span<const size_t> blocks,
                  DType dtype) {
  return Layout::blocks({blocks.begin(), blocks.end()}, group.unit_bytes(), schedule.room_chunks,
                        element_bytes(dtype));
}

std::shared_ptr<const Plan> Plans::plan_of(const PassKind& kind, const Group& group, DType dtype,
                                           const Blocks& blocks) {
  if (blocks.size() > kMostBlocks) return make(kind, group, dtype, blocks);
  Kept wanted{.kind = kind,
              .group = facts_of(group),
              .unit_bytes = group.unit_bytes(),
              .element_bytes = element_bytes(dtype),
              .blocks = blocks,
              .plan = nullptr};
  if (const Kept* kept = find(wanted)) return kept->plan;
  auto plan = make(kind, group, dtype, blocks);
  wanted.plan = plan;
  if (kept_.size() < kMostKept) {
    kept_.push_back(std::move(wanted));
  } else {
    kept_[oldest_] = std::move(wanted);
    oldest_ = (oldest_ + 1) % kMostKept;
  }
  return plan;
}

const Plans::Kept* Plans::find(const Kept& wanted) const {
  const auto it = std::ranges::find_if(kept_, [&](const Kept& kept) {
    return kept.kind == wanted.kind && kept.group == wanted.group &&
           kept.unit_bytes == wanted.unit_bytes && kept.element_bytes == wanted.element_bytes &&
           kept.blocks == wanted.blocks;
  });
  return it == kept_.end() ? nullptr : &*it;
}

}  // namespace hvd
