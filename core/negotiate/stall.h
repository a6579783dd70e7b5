// Formats the stall report: which operations wait for which ranks, and what those ranks do instead.
// Pure.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "core/negotiate/messages.h"

namespace hvd {

/// Context for formatting the report.
struct StallFacts {
  std::map<GroupNumber, std::vector<int32_t>> process_sets;  ///< Root::process_sets()
  std::chrono::seconds tick{60};                             ///< the period of the stall check
  std::chrono::seconds shutdown{
      0};  ///< an operation that waits longer than this ends the job; 0: never
};

/// Returns the log text, several lines; empty if the stalled operations have progressed since.
/// Tools parse the line `Missing ranks:` and the lines after it, one per rank: `<rank>: [<name>,
/// <name> ...]`, with `!` after the number of a rank for which some operation has waited beyond the
/// limit.
std::string describe_stall(const StallReport& report, const StallFacts& facts);

/// Returns whether an operation has waited beyond the limit or its timeout. describe_stall() then
/// gives the reason why the job ends; use it as the error text.
bool stall_ends_job(const StallReport& report, const StallFacts& facts);

}  // namespace hvd
