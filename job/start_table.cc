#include "job/start_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

namespace hvd::job {
namespace {

constexpr std::array<std::string_view, 5> kSteps{"resolve", "ssh", "agent", "program",
                                                 "connect back"};
/// Of a large cluster that is down the first hosts tell enough.
constexpr size_t kMaxTold = 32;

std::string_view mark(const StartRow& row, size_t step) {
  const auto at = static_cast<size_t>(row.step);
  if (row.local && step != static_cast<size_t>(StartStep::program)) return "-";
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
      return "ssh came through, but horovodrun on that host says nothing";
    case StartStep::program:
    case StartStep::connect_back:
      return "the agent has not said that it is ready";
    case StartStep::ready:
      break;
  }
  return "";
}

}  // namespace

StartRow timed_out(StartRow row, int64_t seconds) {
  if (row.settled()) return row;
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
    lines.push_back(
        fmt::format("{}: {}: {}", row.host, kSteps[static_cast<size_t>(row.step)], row.problem));
    for (const std::string& line : row.advice) lines.push_back("    " + line);
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
         {"advice", row.advice},
         {"reached_at", row.reached_at},
         {"interface", row.interface}});
  // What ssh has said may be anything.
  return table.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace hvd::job
