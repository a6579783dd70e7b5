#include "core/engine/process_sets.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "core/base/assert.h"
#include "core/base/error.h"
#include "core/base/hash.h"

namespace hvd {
namespace {

constexpr size_t kMaxRanksInText = 32;

/// Returns different texts for different sets, even if the list is cut.
std::string distinct_text(const std::vector<int>& ranks) {
  const std::string text = to_text_of_ranks(ranks);
  if (ranks.size() <= kMaxRanksInText) return text;
  return fmt::format("{} (hash {:x})", text,
                     hash_name(fmt::format("{}", fmt::join(ranks, ","))).low);
}

}  // namespace

int ProcessSet::rank_of(int global_rank) const {
  const auto place = std::lower_bound(ranks.begin(), ranks.end(), global_rank);
  const bool found = place != ranks.end() && *place == global_rank;
  return found ? static_cast<int>(place - ranks.begin()) : kNoRank;
}

std::string to_text_of_ranks(const std::vector<int>& ranks) {
  const size_t shown = std::min(ranks.size(), kMaxRanksInText);
  std::string text = "[";
  for (size_t i = 0; i < shown; ++i) text += (i ? ", " : "") + std::to_string(ranks[i]);
  if (shown < ranks.size()) text += fmt::format(", and {} more", ranks.size() - shown);
  return text + "]";
}

ProcessSet ProcessSet::of_all(int size) {
  ProcessSet all{.ranks = std::vector<int>(static_cast<size_t>(size))};
  std::iota(all.ranks.begin(), all.ranks.end(), 0);
  return all;
}

ProcessSets::ProcessSets(int world_size) {
  sets_[kWorldId] = std::make_shared<const ProcessSet>(ProcessSet::of_all(world_size));
}

std::shared_ptr<const ProcessSet> ProcessSets::find(int32_t id) const {
  const std::lock_guard lock(mutex_);
  const auto found = sets_.find(id);
  return found == sets_.end() ? nullptr : found->second;
}

std::shared_ptr<const ProcessSet> ProcessSets::find_group(GroupNumber group) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [id, set] : sets_) {
    if (set->group == group) return set;
  }
  return nullptr;
}

std::string ProcessSets::why_not(const std::vector<int>& ranks) const {
  const std::string set = "process set " + to_text_of_ranks(ranks);
  if (ranks.empty()) return set + " has no rank";
  const std::lock_guard lock(mutex_);
  const int size = sets_.at(kWorldId)->size();
  for (const int rank : {ranks.front(), ranks.back()}) {
    if (rank < 0 || rank >= size)
      return fmt::format("{}: rank {} is outside the job, 0 to {}", set, rank, size - 1);
  }
  const auto twice = std::adjacent_find(ranks.begin(), ranks.end());
  if (twice != ranks.end()) return fmt::format("{} has rank {} twice", set, *twice);
  for (const auto& [id, other] : sets_) {
    if (other->ranks != ranks) continue;
    return set + (id == kWorldId ? " duplicates the global process set: it has all ranks"
                                 : fmt::format(" duplicates the one with id {}", id));
  }
  return "";
}

int32_t ProcessSets::add(GroupNumber group, std::vector<int> ranks) {
  auto made = std::make_shared<const ProcessSet>(ProcessSet{group, std::move(ranks)});
  const std::lock_guard lock(mutex_);
  HVD_ASSERT(next_ < std::numeric_limits<int32_t>::max());
  sets_.emplace(next_, std::move(made));
  return next_++;
}

void ProcessSets::remove(GroupNumber group) {
  const std::lock_guard lock(mutex_);
  const auto gone = std::find_if(sets_.begin(), sets_.end(),
                                 [=](const auto& entry) { return entry.second->group == group; });
  if (gone == sets_.end()) return;
  sets_.erase(gone);
}

Terms terms_of_sets(const std::vector<std::vector<int>>& sets, int world_size) {
  Terms terms{.text = fmt::format("the number of process sets={}\n", sets.size())};
  ProcessSets known(world_size);
  for (size_t i = 0; i < sets.size(); ++i) {
    const std::string entry = fmt::format("entry {} of process_sets", i);
    terms.text += fmt::format("{}={}\n", entry, distinct_text(sets[i]));
    const std::string why = known.why_not(sets[i]);
    if (!why.empty() && terms.refusal.empty()) terms.refusal = entry + ": " + why;
    if (why.empty()) known.add(static_cast<GroupNumber>(i + 1), sets[i]);
  }
  return terms;
}

}  // namespace hvd
