// Rules that the simulation omits on purpose, to test that it detects that. Linked by tests only.
#pragma once

#include <cstdint>

#include "core/negotiate/options.h"

namespace hvd::sim {

/// A rule of the negotiation that can be omitted.
enum class Without : uint8_t {
  nothing,
  // Rules of the machines (see Rules).
  retired_slots_are_kept,
  slot_numbers_are_fresh,
  group_numbers_are_fresh,
  join_done_queues,
  joins_count_in_sets,
  substitution_is_counted,
  fault_waits_for_all,
  threshold_never_refuses,
  changes_are_sent_in_full,
  counts_outlive_retirement,
  // Rules of their environment.
  one_stream_for_all_groups,
  entries_before_join,
  joined_ranks_learn_slots,
  joined_ranks_are_not_ready,  ///< at least one rank must submit
  root_cuts_batches,
};
inline constexpr Without kLastRule = Without::root_cuts_batches;
const char* name_of(Without rule);
/// Returns the remaining rules of the machines.
Rules rules_without(Without without);

}  // namespace hvd::sim
