// A schedule laid out over bytes, and what follows from the two for one rank: all of a pass that
// does not depend on the memory whose bytes it moves. Made once for operations that are repeated
// (planning cost 1.0 of the 2.2 us that a call on a group took beside the bytes).
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "core/collective/layout.h"
#include "core/collective/schedule.h"

namespace hvd {

/// A value that is never changed. Of [phase] lists there are as many as schedule.phases.
struct Plan {
  /// A chunk that goes into the room: from the input while it is `fresh`, not changed here yet.
  struct Packed {
    int chunk = 0;
    bool fresh = true;
  };

  /// The chunks of both are as many.
  Plan(Schedule schedule, Layout layout);

  /// No receive has changed `chunk` here before `phase`.
  bool is_fresh(int chunk, size_t phase) const { return first_changes[chunk] >= phase; }
  /// `phase` reduces `chunk`, and nothing changes it afterwards.
  bool is_finished(int chunk, size_t phase) const;

  Schedule schedule;  ///< receives of one target side by side, in ascending order of rank
  Layout layout;
  std::vector<size_t> first_changes;  ///< [chunk] the first phase that changes it here
  /// [phase] chunks whose last change it reduces, ascending
  std::vector<std::vector<int>> finished_reduces;
  /// [phase][receive] of how many ranks this one holds a reduction before it
  std::vector<std::vector<int>> own_contributions;
  std::vector<std::vector<Packed>> packs;  ///< [phase] what is sent
  std::vector<bool> sends_changed;         ///< [phase] it sends chunks that it also changes
  std::vector<int> unchanged;              ///< chunks that no phase changes here
  /// Units that this rank publishes before it merges the first of them, where it does not lend.
  size_t most_ahead;
};

/// Where `rank` stands among those that it receives from into one target.
size_t place_among(std::span<const Receive> receives, int rank);
/// Of how many ranks each operand of a merge is the reduction: `own` at `own_place`, the others as
/// `receives` say. Replaces what was in `counts`.
void count_contributions(std::span<const Receive> receives, int own, size_t own_place,
                         std::vector<int>& counts);

std::shared_ptr<const Plan> make_plan(Schedule schedule, Layout layout);

}  // namespace hvd
