// The texts of the lines in the stacks of ranks, from files that this host can read.
#pragma once

#include <vector>

#include "core/base/clock.h"
#include "launcher/dump/rank_report.h"

namespace hvd::launcher {

/// Fills in those that can be read until the deadline: the scripts of a job that hangs may lie on a
/// file system that does not answer.
void add_sources(std::vector<RankReport>& reports, TimePoint deadline);

}  // namespace hvd::launcher
