// The Python stacks of ranks whose main thread does not answer, read by py-spy where it is
// installed. It reads the memory of a process without stopping it, for which it may need a right
// (ptrace).
#pragma once

#include <string_view>
#include <vector>

#include "core/base/clock.h"
#include "launcher/dump/rank_report.h"

namespace hvd::launcher {

/// Asks for the stacks of ranks that have none, until the deadline. py-spy is looked for in the
/// PATH of the rank.
void add_spied_stacks(std::vector<RankReport>& reports, TimePoint deadline);

/// Returns the main thread's stack in what `py-spy dump --json` prints. Empty if there is none.
std::vector<Frame> spied_stack(std::string_view printed);

}  // namespace hvd::launcher
