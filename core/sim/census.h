// Counts the features that simulated runs contained, so that tests can require a good mixture.
#pragma once

#include <fmt/core.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace hvd::sim {

enum class Ingredient : uint8_t {
  // Operations that ran, one count per group of ranks.
  allreduces,
  adasums,
  allgathers,
  broadcasts,
  alltoalls,
  reducescatters,
  barriers,
  messages,
  grouped,     ///< several tensors under one name
  kept_apart,  ///< groups that must not run together with others
  batches,
  fused,      ///< operations that ran together with others
  stand_ins,  ///< batches in which a joined rank took part
  // Names and signatures, as they were submitted.
  submissions,
  changes,         ///< a name is reused with another signature on all ranks
  one_time_names,  ///< never reused
  duplicates,      ///< rejected: the name is still in flight
  faults,          ///< requests that failed because ranks disagree or one has joined
  // Process sets and joins, one count per rank.
  sets_added,
  sets_removed,
  sets_refused,  ///< ranks disagreed about the members, or one had joined
  orphans,       ///< requests that failed with their process set
  joins,
  messages_to_joined,  ///< messages to or from a rank that has joined: they fail
  messages_with_names_of_operations,
  messages_of_one_name,  ///< submitted while another one between the same ranks waits
  // Runs with special features.
  overlapping_sets,
  sets_in_midst,        ///< added between other operations and used at once
  sets_removed_in_use,  ///< an operation of it was just submitted
  joined_in_sets,  ///< operations of a process set without some of its ranks, which have joined
  several_joins,
  capacity_none,
  capacity_one,
  capacity_two,
  capacity_few,
  capacity_many,
  evictions,     ///< slots were retired
  kept_retired,  ///< a hub kept a retired slot for a child that had not been informed yet
  stalls,
  silent_ranks,
  shutdowns,
  deaths,
  two_deaths,
  deaths_in_join,  ///< some rank had joined, some had not
  deaths_in_set_creation,
  shutdowns_and_deaths,
  mixed,            ///< joins, process sets, changed signatures and evictions
  mixed_with_loss,  ///< the same with a death
};
inline constexpr size_t kIngredients = static_cast<size_t>(Ingredient::mixed_with_loss) + 1;
std::string_view name_of(Ingredient ingredient);

/// How often each of `kCount` ingredients occurred. name_of() returns their names. A value type.
template <class What, size_t kCount>
class Tally {
 public:
  void count(What what, uint64_t times = 1) { counts_[static_cast<size_t>(what)] += times; }
  uint64_t of(What what) const { return counts_[static_cast<size_t>(what)]; }
  bool has(What what) const { return of(what) > 0; }
  void add(const Tally& other) {
    for (size_t i = 0; i < kCount; ++i) counts_[i] += other.counts_[i];
  }
  /// Returns one line per ingredient.
  std::string text() const {
    std::string text;
    for (size_t i = 0; i < kCount; ++i)
      text += fmt::format("{:>12} {}\n", counts_[i], name_of(static_cast<What>(i)));
    return text;
  }

 private:
  std::array<uint64_t, kCount> counts_{};
};

using Census = Tally<Ingredient, kIngredients>;

}  // namespace hvd::sim
