// Expands Slurm's compressed lists of nodes and of tasks per node. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/knobs.h"
#include "core/bootstrap/variables.h"

namespace hvd {

/// "3(x2),1": {3, 3, 1}. Throws Error{invalid_argument} naming the variable `name` if malformed.
std::vector<int> expand_counts(const std::string& name, const std::string& text);

/// "n[02-04,7],m1": "n02". Throws Error{invalid_argument} naming `name` if there is no node.
std::string first_of_node_list(const std::string& name, const std::string& text);

/// The local rank and size of this task, from SLURM_LOCALID, SLURM_NODEID and
/// SLURM_STEP_TASKS_PER_NODE. Nothing outside a step.
std::optional<RankAndSize> slurm_local_rank(const Environment& environment);

}  // namespace hvd
