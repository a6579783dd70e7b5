#include "launcher/driver/start_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

namespace hvd::launcher {
namespace {

constexpr std::array<std::string_view, 5> kSteps{"resolve", "ssh", "agent", "program",
                                                 "connect back"};
/// In a large cluster that is down, the first hosts are enough.
constexpr size_t kMaxTold = 32;

std::string_view mark(const StartRow& row, size_t step) {
  const auto at = static_cast<size_t>(row.step);
  if (row.untried || (row.local && step != static_cast<size_t>(StartStep::program))) return "-";
  if (step < at || row.ready()) return "ok";
  if (step > at) return "-";
  return row.failed() ? "FAILED" : "...";
}

std::string table_line(std::string_view host, size_t width,
                       const std::array<std::string_view, kSteps.size()>& cells) {
  std::string line = fmt::format("  {:<{}}", host, width);
  for (size_t step = 0; step < cells.size(); ++step)
    line += fmt::format("  {:<{}}", cells[step], std::max<size_t>(kSteps[step].size(), 6));
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

std::string_view what_is_missing(StartStep step) {
  switch (step) {
    case StartStep::resolve:
    case StartStep::ssh:
      return "no answer through ssh";
    case StartStep::agent:
      return "ssh connected, but horovodrun on that host sent nothing";
    case StartStep::program:
    case StartStep::connect_back:
      return "the agent on that host did not become ready";
    case StartStep::ready:
      break;
  }
  return "";
}

std::string_view step_name(StartStep step) { return kSteps[static_cast<size_t>(step)]; }

/// Returns the problem of a host, and from which host it was seen.
std::string what_failed(const StartRow& row) {
  if (row.untried) return fmt::format("{}: {}", row.host, row.problem);
  const bool seen_there = !row.from.empty() && row.step <= StartStep::agent;
  return fmt::format("{}: {}{}: {}", row.host, step_name(row.step),
                     seen_there ? fmt::format(" from {}", row.from) : "", row.problem);
}

std::vector<std::string> advice_for(const StartRow& row) {
  std::vector<std::string> lines = row.advice;
  if (!lines.empty() && !row.from.empty() && !row.untried && row.step <= StartStep::agent)
    lines.push_back(fmt::format(
        "run these on {}, which starts its agent; or let this machine start more agents itself: "
        "horovodrun --agent-fan-out 1000 ...",
        row.from));
  return lines;
}

}  // namespace

std::string cpus_text(const StartRow& row, int first_rank) {
  if (row.cpus.empty())
    return fmt::format("not bound{}{}", row.not_bound.empty() ? "" : ": ", row.not_bound);
  std::string text;
  for (const std::string& cpus : row.cpus)
    text += fmt::format("{}rank {}: {}", text.empty() ? "" : "; ", first_rank++, cpus);
  return text;
}

StartRow without_way(StartRow row, const std::string& lost) {
  if (row.failed()) return row;
  row.problem = row.untried ? fmt::format("not tried, since it is reached from {}", row.from)
                            : fmt::format("{}, through which it is reached, was lost", lost);
  row.step = StartStep::ssh;
  return row;
}

StartRow timed_out(StartRow row, int64_t seconds) {
  if (row.settled()) return row;
  if (row.untried) return without_way(row, row.from);
  if (row.step == StartStep::resolve) row.step = StartStep::ssh;
  row.problem = fmt::format("{} within {} s", what_is_missing(row.step), seconds);
  row.advice = {"to allow more time: horovodrun --start-timeout SECONDS ..."};
  return row;
}

std::vector<std::string> start_table(const std::vector<StartRow>& rows) {
  const auto failed = std::ranges::count_if(rows, &StartRow::failed);
  size_t width = 4;
  for (const StartRow& row : rows) width = std::max(width, row.host.size());
  std::vector<std::string> lines{fmt::format("the job was not started: {} of {} hosts {} not ready",
                                             failed, rows.size(), failed == 1 ? "is" : "are"),
                                 table_line("host", width, kSteps)};
  size_t told = 0;
  for (const StartRow& row : rows) {
    if (rows.size() > kMaxTold && !row.failed()) continue;
    if (told++ == kMaxTold) break;
    std::array<std::string_view, kSteps.size()> cells;
    for (size_t step = 0; step < cells.size(); ++step) cells[step] = mark(row, step);
    lines.push_back(table_line(row.host, width, cells));
  }
  told = 0;
  for (const StartRow& row : rows) {
    if (!row.failed() || told++ >= kMaxTold) continue;
    lines.push_back(what_failed(row));
    for (const std::string& line : advice_for(row)) lines.push_back("    " + line);
  }
  return lines;
}

std::string start_json(const std::vector<StartRow>& rows) {
  nlohmann::json table = nlohmann::json::array();
  for (const StartRow& row : rows)
    table.push_back(
        {{"host", row.host},
         {"ready", row.ready()},
         {"step", row.ready() ? "" : std::string(kSteps[static_cast<size_t>(row.step)])},
         {"problem", row.problem},
         {"advice", advice_for(row)},
         {"reached_at", row.reached_at},
         {"interface", row.interface}});
  // The output of ssh may hold any bytes.
  return table.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace hvd::launcher
