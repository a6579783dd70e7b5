// Explains hangs between operations: in init and shutdown, where all ranks meet, between two
// generations of an elastic job, and at the end of the processes. Pure.
#pragma once

#include <optional>
#include <vector>

#include "launcher/dump/explain.h"
#include "launcher/dump/rank_report.h"

namespace hvd::launcher {

/// None: no rank has waited for kHangAge between operations. `reports`: as for explain().
std::optional<Cause> between_operations(const std::vector<RankReport>& reports);

}  // namespace hvd::launcher
