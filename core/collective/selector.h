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
};

/// `choice` other than automatic overrides.
Schedule choose_allreduce(const GroupFacts& group, size_t bytes, AlgorithmChoice choice);
/// `bytes` of all ranks together.
Schedule choose_allgather(const GroupFacts& group, size_t bytes);
/// `root` is a rank of the group.
Schedule choose_broadcast(const GroupFacts& group, size_t bytes, int root);

/// The choices as a table for people.
std::string describe_choices();

}  // namespace hvd
