// Which algorithm runs: a pure function of facts that all ranks agree on, so that all choose alike
// without asking.
#pragma once

#include <cstddef>
#include <string>

#include "core/base/knobs.h"
#include "core/collective/schedule.h"

namespace hvd {

struct GroupFacts {
  int rank = 0;  ///< within the group; decides this rank's part, not the choice
  int size = 1;
  bool shared_memory = false;
  bool on_one_machine = false;  ///< also over links
  int ranks_a_core = 1;         ///< in a row; divides `size`
  bool operator==(const GroupFacts&) const = default;
};

/// What the knobs say about the choice; agreed, so equal on all ranks.
struct AllreduceRules {
  AlgorithmChoice choice = AlgorithmChoice::automatic;  ///< other than automatic overrides
  /// The same bits whatever the algorithm, the transport, the size and the batch: only algorithms
  /// that add up all ranks in ascending order in one go may be chosen, and overrule `choice`.
  bool deterministic = false;
  bool operator==(const AllreduceRules&) const = default;
};

Schedule choose_allreduce(const GroupFacts& group, size_t bytes, const AllreduceRules& rules);
/// `bytes`: of the result.
Schedule choose_allgather(const GroupFacts& group, size_t bytes);
/// `root` is a rank of the group.
Schedule choose_broadcast(const GroupFacts& group, int root);
Schedule choose_reducescatter(const GroupFacts& group);
Schedule choose_alltoall(const GroupFacts& group);

/// What to tell the user whose choice is overruled; empty when there is nothing to tell.
std::string warning_of_choice(const AllreduceRules& rules);

/// The choices as a table for people.
std::string describe_choices();

}  // namespace hvd
