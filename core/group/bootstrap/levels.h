// The two levels of a group: its ranks on one host, and across hosts those with the same place in
// theirs. Pure functions of where the ranks are.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/knobs.h"
#include "core/negotiate/topology.h"

namespace hvd {

/// Global ranks, but for `all`.
struct Levels {
  std::vector<int> host;    ///< those of this rank's host, ascending
  std::vector<int> across;  ///< one of each host, in the order of hosts
  std::vector<int> all;     ///< [host, place] the rank within the whole group
};

/// The levels that `own` sees of a group of `ranks` (global, ascending). None unless the group is
/// on several hosts, with equally many ranks on each, and more than one.
std::optional<Levels> levels_of(const Topology& topology, const std::vector<int>& ranks, int own);

/// Whether any operation runs in levels where a group has them.
bool wants_levels(const Knobs& knobs);

/// What rank 0 tells the user who asked for levels and does not get them everywhere: the hosts have
/// different numbers of ranks, or the same bits are asked for too, while sums in levels depend on
/// the hosts. Empty when there is nothing to tell.
std::string warning_of_levels(const Topology& topology, const Knobs& knobs);

}  // namespace hvd
