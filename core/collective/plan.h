// A schedule combined with a layout, plus everything that follows from both for one rank: the part
// of a pass that does not depend on the memory. Plans are cached for repeated operations, because
// planning takes a large part of a latency-bound call.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "core/collective/layout.h"
#include "core/collective/schedule.h"

namespace hvd {

/// An immutable value. [phase] lists have schedule.phases.size() entries.
struct Plan {
  /// A chunk to send: read from the input if `fresh` (not changed on this rank yet), else from the
  /// output.
  struct Packed {
    int chunk = 0;
    bool fresh = true;
  };

  /// Both must have the same number of chunks.
  Plan(Schedule schedule, Layout layout);

  /// Returns whether no receive has changed `chunk` on this rank before `phase`.
  bool is_fresh(int chunk, size_t phase) const { return first_changes[chunk] >= phase; }
  /// Returns whether `phase` reduces `chunk` and no later phase changes it.
  bool is_finished(int chunk, size_t phase) const;

  Schedule schedule;  ///< receives with one target are adjacent, in ascending order of rank
  Layout layout;
  std::vector<size_t> first_changes;  ///< [chunk] the first phase that changes it on this rank
  /// [phase] chunks whose last change is a reduce in this phase, ascending
  std::vector<std::vector<int>> finished_reduces;
  /// [phase][receive] the number of ranks whose contributions this rank has reduced before it
  std::vector<std::vector<int>> own_contributions;
  std::vector<std::vector<Packed>> packs;  ///< [phase] chunks to send
  std::vector<bool> sends_changed;         ///< [phase] whether it sends chunks that it also changes
  std::vector<int> unchanged;              ///< chunks that no phase changes on this rank
  /// Maximum number of units that this rank publishes before it merges the first of them, without
  /// zero-copy sends.
  size_t most_ahead;
};

/// Returns the position of `rank` among the ranks of `receives`, which have one target.
size_t place_among(std::span<const Receive> receives, int rank);
/// Computes how many contributions each operand of a merge has: `own` at `own_place`, the others as
/// in `receives`. Overwrites `counts`.
void count_contributions(std::span<const Receive> receives, int own, size_t own_place,
                         std::vector<int>& counts);

std::shared_ptr<const Plan> make_plan(Schedule schedule, Layout layout);

}  // namespace hvd
