#include "core/blocking/ways.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <ranges>

#include "core/base/assert.h"
#include "core/base/error.h"

namespace hvd {
namespace {

// For smaller tensors the exchange of addresses takes longer than the copy that it saves.
constexpr size_t kLeastCrossMemory = 4 * KiB;
// Bytes of all ranks together. Larger data is rarely in a cache when it is read, and non-temporal
// stores of the results are then faster (docs/decisions/0027).
constexpr size_t kMostCrossMemoryOfAll = 32 * MiB;

SizeLimits shared_memory_limits(const EagerBuffers* buffers) {
  return buffers == nullptr ? SizeLimits{} : OneShotCall::limits(*buffers);
}

SizeLimits link_limits(const Group& group) {
  return group.in_place() ? OneShotLinkCall::limits(group.size()) : SizeLimits{};
}

}  // namespace

std::span<const Ways::Row> Ways::table() {
  static constexpr std::array<Row, kWays> kTable{{
      {Way::cross_memory, "large, in shared memory, if timing shows it to be faster", true,
       [](const Ways& ways, const TensorTask& task, Choice&) {
         return ways.suits_cross_memory(task);
       },
       [](const Ways& ways, const Start& start, WayCall& call) {
         const CrossMemory& cross = *start.cross;
         call.emplace<CrossMemoryCall>(*ways.buffers_, cross.memory, cross.has_ended, cross.scratch,
                                       start.task);
       }},
      {Way::self_scheduled, "allreduce in shared memory, oversubscribed cores", false,
       [](const Ways& ways, const TensorTask& task, Choice&) {
         return ways.fits_eager_buffers(task) &&
                SelfScheduledCall::suits(task, ways.group_.size(), ways.rules_.spare_cores);
       },
       [](const Ways& ways, const Start& start, WayCall& call) {
         call.emplace<SelfScheduledCall>(*ways.buffers_, start.task);
       }},
      {Way::reduce_scatter_allgather, "larger allreduce in shared memory", false,
       [](const Ways& ways, const TensorTask& task, Choice&) {
         return ways.fits_eager_buffers(task) &&
                ReduceScatterAllgatherCall::suits(task, ways.group_.size(),
                                                  ways.rules_.spare_cores);
       },
       [](const Ways& ways, const Start& start, WayCall& call) {
         call.emplace<ReduceScatterAllgatherCall>(*ways.buffers_, start.task);
       }},
      {Way::one_shot, "fits into the eager buffers in shared memory", false,
       [](const Ways& ways, const TensorTask& task, Choice&) {
         return ways.fits_eager_buffers(task);
       },
       [](const Ways& ways, const Start& start, WayCall& call) {
         call.emplace<OneShotCall>(*ways.buffers_, start.task);
       }},
      {Way::one_shot_links, "small, over links, one message per peer", false,
       [](const Ways& ways, const TensorTask& task, Choice&) {
         return ways.group_.in_place() && task.operation.prescale == 1.0 &&
                task.bytes() <= ways.links_.of(task.operation.kind);
       },
       [](const Ways& ways, const Start& start, WayCall& call) {
         call.emplace<OneShotLinkCall>(ways.group_, start.sequence, start.task);
       }},
      {Way::phased_links, "allreduce or broadcast over links, in one piece", false,
       [](const Ways& ways, const TensorTask& task, Choice& choice) {
         choice.plan = ways.plan_of(task);
         return choice.plan != nullptr && PhasedLinkCall::suits(*choice.plan, ways.group_.size());
       },
       [](const Ways& ways, const Start& start, WayCall& call) {
         call.emplace<PhasedLinkCall>(ways.group_, start.sequence, start.plan, start.task);
       }},
      {Way::executor, "everything", false,
       [](const Ways&, const TensorTask&, Choice&) { return true; }, nullptr},
  }};
  return kTable;
}

const Ways::Row& Ways::row(Way way) {
  const Row& found = table()[static_cast<size_t>(way)];
  HVD_ASSERT(found.way == way);
  return found;
}

uint32_t parse_ways(std::string_view text) {
  if (text.empty()) return ~0U;
  const bool excludes = text.starts_with('^');
  uint32_t named = 0;
  for (const auto word : std::views::split(text.substr(excludes ? 1 : 0), ',')) {
    const std::string_view name(word.begin(), word.end());
    int way = 0;
    while (way < kWays && name_of(static_cast<Way>(way)) != name) ++way;
    if (way == kWays)
      fail(Code::invalid_argument,
           fmt::format("HOROVOD_WAYS: unknown name \"{}\"; expected one of:\n{}", name,
                       Ways::describe()));
    named |= uint32_t{1} << way;
  }
  return excludes ? ~named : named;
}

Progress advance(WayCall& call) {
  return std::visit(
      [](auto& under_way) {
        if constexpr (std::is_same_v<decltype(under_way), std::monostate&>) {
          HVD_ASSERT(false);
          return Progress::done;
        } else {
          return under_way.advance();
        }
      },
      call);
}

Ways::Rules Ways::rules_of(const Knobs& knobs, bool spare_cores) {
  return {.spare_cores = spare_cores,
          .allreduce_chosen = knobs.allreduce_algorithm != AlgorithmChoice::automatic,
          .allowed = parse_ways(knobs.ways)};
}

Ways::Ways(const GroupLevels& groups, HostBackend& backend, const Rules& rules)
    : groups_(groups),
      group_(*groups.all),
      backend_(backend),
      buffers_(group_.eager_buffers()),
      rules_(rules),
      shared_memory_(shared_memory_limits(buffers_)),
      links_(link_limits(group_)) {}

Ways::Choice Ways::choose(const TensorTask& task) const {
  Choice choice;
  if (rules_.allreduce_chosen && task.operation.kind == OperationKind::allreduce) return choice;
  for (const Row& row : table()) {
    const bool allowed = (rules_.allowed >> static_cast<int>(row.way) & 1) != 0;
    if (row.way != Way::executor && (!allowed || !row.suits(*this, task, choice))) continue;
    if (!row.timed) {
      choice.way = row.way;
      break;
    }
    choice.rival = row.way;
  }
  return choice;
}

bool Ways::fits_eager_buffers(const TensorTask& task) const {
  return buffers_ != nullptr && task.bytes() <= shared_memory_.of(task.operation.kind);
}

bool Ways::suits_cross_memory(const TensorTask& task) const {
  if (buffers_ == nullptr || group_.size() == 1 || task.operation.prescale != 1.0) return false;
  if (task.bytes() < kLeastCrossMemory) return false;
  const auto ranks = static_cast<size_t>(group_.size());
  const size_t held =
      task.operation.kind == OperationKind::allgather ? task.bytes() * ranks : task.bytes();
  return held * ranks <= kMostCrossMemoryOfAll;
}

std::shared_ptr<const Plan> Ways::plan_of(const TensorTask& task) const {
  if (!group_.in_place() || group_.size() == 1 || task.operation.prescale != 1.0) return nullptr;
  if (task.bytes() > PhasedLinkCall::kMostBytes) return nullptr;
  return backend_.plan_of(groups_, task.operation, task.bytes());
}

/// Upper limits; the conditions of the rows are stricter.
SizeLimits Ways::limits() const {
  SizeLimits limits = shared_memory_;
  if (buffers_ != nullptr) {
    for (size_t* const limit :
         {&limits.reduced, &limits.gathered, &limits.broadcast, &limits.dealt})
      if (*limit > 0) *limit = std::max(*limit, kMostCrossMemoryOfAll);
  } else {
    limits = links_;
    const size_t most = group_.in_place() && group_.size() > 1 ? PhasedLinkCall::kMostBytes : 0;
    limits.reduced = std::max(limits.reduced, most);
    limits.broadcast = std::max(limits.broadcast, most);
  }
  if (rules_.allreduce_chosen) limits.reduced = 0;
  return limits;
}

std::string Ways::describe() {
  std::string text;
  for (const Row& row : table()) text += fmt::format("{:<26}{}\n", name_of(row.way), row.condition);
  return text;
}

}  // namespace hvd
