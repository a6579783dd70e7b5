// Selects the algorithm: a pure function of facts that are equal on all ranks, so that all ranks
// select the same one without communication.
#pragma once

#include <cstddef>
#include <string>

#include "core/base/knobs.h"
#include "core/collective/schedule.h"

namespace hvd {

struct GroupFacts {
  int rank = 0;  ///< within the group; affects this rank's part of the schedule, not the selection
  int size = 1;
  bool shared_memory = false;
  bool on_one_machine = false;  ///< also over links
  int ranks_a_core = 1;         ///< consecutive ranks per core; divides `size`
  bool operator==(const GroupFacts&) const = default;
};

/// The knobs that affect the selection; agreed, so equal on all ranks.
struct AllreduceRules {
  AlgorithmChoice choice =
      AlgorithmChoice::automatic;  ///< any value except automatic overrides the selection
  /// Results are bitwise reproducible for any algorithm, transport, size and batch: restricts the
  /// selection to algorithms that add all ranks in ascending order at once. Takes precedence over
  /// `choice`.
  bool deterministic = false;
  bool operator==(const AllreduceRules&) const = default;
};

Schedule choose_allreduce(const GroupFacts& group, size_t bytes, const AllreduceRules& rules);
/// `bytes`: size of the result.
Schedule choose_allgather(const GroupFacts& group, size_t bytes);
/// `root` is a rank of the group.
Schedule choose_broadcast(const GroupFacts& group, size_t bytes, int root);
Schedule choose_reducescatter(const GroupFacts& group);
Schedule choose_alltoall(const GroupFacts& group);

/// Returns the warning for a user whose choice is overridden; empty if there is none.
std::string warning_of_choice(const AllreduceRules& rules);

/// Returns the selection rules as a table for users.
std::string describe_choices();

}  // namespace hvd
