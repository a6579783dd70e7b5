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

/// What the log says, several lines; empty when what had stalled has meanwhile moved on. Tools look
/// for the line `Missing ranks:` and the lines after it, one a rank: `<rank>: [<name>, <name>
/// ...]`, with
/// `!` after the number of a rank that some operation has waited for beyond the limit.
std::string describe_stall(const StallReport& report, const StallFacts& facts);

/// An operation has waited beyond the limit. describe_stall then says why the job ends, and is the
/// text to end it with.
bool stall_ends_job(const StallReport& report, const StallFacts& facts);

}  // namespace hvd
