#include "core/sim/without.h"

#include "core/base/assert.h"

namespace hvd::sim {

const char* name_of(Without rule) {
  switch (rule) {
    case Without::nothing:
      return "nothing";
    case Without::retired_slots_are_kept:
      return "retired_slots_are_kept";
    case Without::slot_numbers_are_fresh:
      return "slot_numbers_are_fresh";
    case Without::group_numbers_are_fresh:
      return "group_numbers_are_fresh";
    case Without::join_done_queues:
      return "join_done_queues";
    case Without::joins_count_in_sets:
      return "joins_count_in_sets";
    case Without::substitution_is_counted:
      return "substitution_is_counted";
    case Without::fault_waits_for_all:
      return "fault_waits_for_all";
    case Without::threshold_never_refuses:
      return "threshold_never_refuses";
    case Without::changes_are_sent_in_full:
      return "changes_are_sent_in_full";
    case Without::counts_outlive_retirement:
      return "counts_outlive_retirement";
    case Without::one_stream_for_all_groups:
      return "one_stream_for_all_groups";
    case Without::entries_before_join:
      return "entries_before_join";
    case Without::joined_ranks_learn_slots:
      return "joined_ranks_learn_slots";
    case Without::joined_ranks_are_not_ready:
      return "joined_ranks_are_not_ready";
    case Without::root_cuts_batches:
      return "root_cuts_batches";
  }
  HVD_ASSERT(false && "a rule");
}

Rules rules_without(Without without) {
  Rules rules;
  switch (without) {
    case Without::retired_slots_are_kept:
      rules.retired_slots_are_kept = false;
      break;
    case Without::slot_numbers_are_fresh:
      rules.slot_numbers_are_fresh = false;
      break;
    case Without::group_numbers_are_fresh:
      rules.group_numbers_are_fresh = false;
      break;
    case Without::join_done_queues:
      rules.join_done_queues = false;
      break;
    case Without::joins_count_in_sets:
      rules.joins_count_in_sets = false;
      break;
    case Without::substitution_is_counted:
      rules.substitution_is_counted = false;
      break;
    case Without::fault_waits_for_all:
      rules.fault_waits_for_all = false;
      break;
    case Without::threshold_never_refuses:
      rules.threshold_never_refuses = false;
      break;
    case Without::changes_are_sent_in_full:
      rules.changes_are_sent_in_full = false;
      break;
    case Without::counts_outlive_retirement:
      rules.counts_outlive_retirement = false;
      break;
    default:
      break;  // not a rule of the machines
  }
  return rules;
}

}  // namespace hvd::sim
