#include "core/collective/plan.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "core/base/assert.h"

namespace hvd {
namespace {

constexpr size_t kNever = std::numeric_limits<size_t>::max();

// If there is only one phase and a rank merges into data that it has sent, it reads that data
// twice. Merging soon keeps it in the cache.
constexpr size_t kMostAheadOfItself = 2;

void sort_receives(Schedule& schedule) {
  const auto key = [](const Receive& receive) {
    return std::tuple(receive.range.first, receive.range.count, receive.merge, receive.peer);
  };
  for (Phase& phase : schedule.phases) std::ranges::sort(phase.receives, {}, key);
}

std::vector<int> distinct_chunks(const std::vector<Send>& sends) {
  std::vector<int> chunks;
  for (const Send& send : sends)
    for (int i = 0; i < send.range.count; ++i) chunks.push_back(send.range.first + i);
  std::ranges::sort(chunks);
  chunks.erase(std::ranges::unique(chunks).begin(), chunks.end());
  return chunks;
}

bool changes_any(const Phase& phase, const std::vector<int>& chunks) {
  return std::ranges::any_of(phase.receives, [&](const Receive& receive) {
    const int end = receive.range.first + receive.range.count;
    return std::ranges::any_of(
        chunks, [&](int chunk) { return chunk >= receive.range.first && chunk < end; });
  });
}

void note_changes(Plan& plan) {
  const auto& phases = plan.schedule.phases;
  plan.first_changes.assign(static_cast<size_t>(plan.schedule.chunks), kNever);
  plan.finished_reduces.resize(phases.size());
  std::vector<std::pair<size_t, Merge>> last(plan.first_changes.size());
  for (size_t phase = 0; phase < phases.size(); ++phase)
    for (const Receive& receive : phases[phase].receives)
      for (int i = 0; i < receive.range.count; ++i) {
        const int chunk = receive.range.first + i;
        plan.first_changes[chunk] = std::min(plan.first_changes[chunk], phase);
        last[chunk] = {phase, receive.merge};
      }
  for (int chunk = 0; chunk < plan.schedule.chunks; ++chunk) {
    if (plan.first_changes[chunk] == kNever)
      plan.unchanged.push_back(chunk);
    else if (last[chunk].second == Merge::reduce)
      plan.finished_reduces[last[chunk].first].push_back(chunk);
  }
}

void note_contributions(Plan& plan) {
  std::vector<int> held(static_cast<size_t>(plan.schedule.chunks), 1);
  for (const Phase& phase : plan.schedule.phases) {
    std::vector<int>& before = plan.own_contributions.emplace_back();
    for (const Receive& receive : phase.receives)
      before.push_back(held[static_cast<size_t>(receive.range.first)]);
    for (const Receive& receive : phase.receives)
      for (int i = 0; i < receive.range.count && receive.merge == Merge::reduce; ++i)
        held[static_cast<size_t>(receive.range.first + i)] += receive.contributions;
  }
}

void note_sends(Plan& plan) {
  const auto& phases = plan.schedule.phases;
  plan.packs.resize(phases.size());
  for (size_t phase = 0; phase < phases.size(); ++phase) {
    const std::vector<int> sent = distinct_chunks(phases[phase].sends);
    for (const int chunk : sent) plan.packs[phase].push_back({chunk, plan.is_fresh(chunk, phase)});
    plan.sends_changed.push_back(changes_any(phases[phase], sent));
  }
}

}  // namespace

Plan::Plan(Schedule of_rank, Layout of_bytes)
    : schedule(std::move(of_rank)), layout(std::move(of_bytes)) {
  HVD_ASSERT(layout.chunks() == schedule.chunks);
  sort_receives(schedule);
  note_changes(*this);
  note_contributions(*this);
  note_sends(*this);
  const bool reads_again = schedule.phases.size() == 1 && sends_changed[0];
  most_ahead = reads_again ? kMostAheadOfItself : kNever;
}

bool Plan::is_finished(int chunk, size_t phase) const {
  return std::ranges::binary_search(finished_reduces[phase], chunk);
}

size_t place_among(std::span<const Receive> receives, int rank) {
  const auto after =
      std::ranges::find_if(receives, [&](const Receive& receive) { return receive.peer > rank; });
  return static_cast<size_t>(after - receives.begin());
}

void count_contributions(std::span<const Receive> receives, int own, size_t own_place,
                         std::vector<int>& counts) {
  counts.clear();
  for (const Receive& receive : receives) counts.push_back(receive.contributions);
  counts.insert(counts.begin() + static_cast<ptrdiff_t>(own_place), own);
}

std::shared_ptr<const Plan> make_plan(Schedule schedule, Layout layout) {
  return std::make_shared<const Plan>(std::move(schedule), std::move(layout));
}

}  // namespace hvd
