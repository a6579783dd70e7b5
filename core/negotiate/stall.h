// The stall report in words: which operation waits for whom, and what those do instead. Pure.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "core/negotiate/messages.h"

namespace hvd {

/// What the report is read with.
struct StallFacts {
  std::map<GroupNumber, std::vector<int32_t>> process_sets;  ///< Root::process_sets()
  std::chrono::seconds tick{60};                             ///< the period of the stall check
  std::chrono::seconds shutdown{0};  ///< an operation that waits for so long ends the job; 0: never
};

struct StallText {
  std::string warning;  ///< several lines; empty when what had stalled has meanwhile moved on
  bool beyond_limit = false;
  std::string error{};  ///< only then: why the job ends, with the same facts
};

/// Tools look for the line `Missing ranks:` of the warning and the lines after it, one a rank:
/// `<rank>: [<name>, <name> ...]`, with `!` after the number of a rank that some operation has
/// waited for beyond the limit.
StallText describe_stall(const StallReport& report, const StallFacts& facts);

}  // namespace hvd
