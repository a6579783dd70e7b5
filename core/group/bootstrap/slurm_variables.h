// What Slurm writes in short: lists of nodes, and how many tasks each of them has. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/knobs.h"
#include "core/group/bootstrap/variables.h"

namespace hvd {

/// "3(x2),1": {3, 3, 1}. Throws Error{invalid_argument} naming `name` for anything else.
std::vector<int> expand_counts(const std::string& name, const std::string& text);

/// "n[02-04,7],m1": "n02". Throws Error{invalid_argument} when there is none.
std::string first_of_node_list(const std::string& name, const std::string& text);

/// Where this task of a step is on its node: SLURM_LOCALID, and its share of
/// SLURM_STEP_TASKS_PER_NODE. Nothing outside a step.
std::optional<Place> slurm_local_place(const Environment& environment);

}  // namespace hvd
