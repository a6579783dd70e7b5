// A dump of a job as text and as JSON. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/dump/explain.h"
#include "launcher/dump/rank_report.h"

namespace hvd::launcher {

/// The first line states the cause. `remarks`: lines about hosts that could not be asked.
std::string dump_text(const std::vector<RankReport>& reports,
                      const std::vector<std::string>& remarks);
/// The cause, and what the ranks do that the others wait for. Empty if there is no cause.
std::string cause_text(const std::vector<RankReport>& reports);
/// One object on one line: cause, operations, ranks, remarks.
std::string dump_json(const std::vector<RankReport>& reports,
                      const std::vector<std::string>& remarks);

}  // namespace hvd::launcher
