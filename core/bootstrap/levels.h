// The two levels of a hierarchical operation on a group: the ranks of one host, and across hosts
// the ranks with the same index on theirs. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/knobs.h"
#include "core/negotiate/topology.h"

namespace hvd {

/// Global ranks, except in `all`.
struct Levels {
  std::vector<int> host;    ///< those of this rank's host, ascending
  std::vector<int> across;  ///< one of each host, in the order of hosts
  std::vector<int> all;     ///< [host][index on it], flattened: ranks within the group
};

/// The levels of a group of `ranks` (global, ascending) as seen by rank `own`. Returns nullopt
/// if the group is not on several hosts, or if they do not all have the same number of ranks, at
/// least 2.
std::optional<Levels> levels_of(const Topology& topology, const std::vector<int>& ranks, int own);

/// Whether a knob enables the levels for any operation.
bool wants_levels(const Knobs& knobs);

/// The warning of rank 0 if a knob enables levels that cannot be used: the hosts have different
/// numbers of ranks, or HOROVOD_DETERMINISTIC is set and sums in levels would depend on the hosts.
/// Empty if there is none.
std::string warning_of_levels(const Topology& topology, const Knobs& knobs);

}  // namespace hvd
