#include "launcher/dump/gathered.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

namespace hvd::launcher {
namespace {

using Json = nlohmann::json;

Json json_of(const std::vector<RankReport>& reports) {
  Json list = Json::array();
  for (const RankReport& report : reports) list.push_back(to_json(report));
  return list;
}

std::vector<RankReport> reports_of(const Json& list) {
  std::vector<RankReport> reports;
  for (const Json& one : list) reports.push_back(report_from_json(one));
  return reports;
}

std::string dumped(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

void add_unknown_ranks(std::vector<RankReport>& reports) {
  constexpr int kMostRanks = 1 << 20;  // what a process tells of itself may be anything
  std::set<int> known;
  int size = 0;
  for (const RankReport& report : reports) {
    known.insert(report.rank);
    if (report.state) size = std::max(size, std::min(report.state->size, kMostRanks));
  }
  for (int rank = 0; rank < size; ++rank)
    if (!known.contains(rank)) reports.push_back({.rank = rank, .is_reached = false});
  std::ranges::stable_sort(reports, {}, &RankReport::rank);
}

std::string to_text(const Gathered& all) {
  return dumped({{"reports", json_of(all.reports)}, {"remarks", all.remarks}});
}

std::optional<Gathered> read_gathered(std::string_view text) try {
  const Json json = Json::parse(text);
  return Gathered{reports_of(json.at("reports")),
                  json.at("remarks").get<std::vector<std::string>>()};
} catch (const Json::exception&) {
  return std::nullopt;
}

std::string to_text(const std::vector<RankReport>& reports) { return dumped(json_of(reports)); }

std::optional<std::vector<RankReport>> reports_in(std::string_view text) try {
  return reports_of(Json::parse(text));
} catch (const Json::exception&) {
  return std::nullopt;
}

std::string dump_socket_of(pid_t launcher) {
  return std::string(kDumpSocket) + std::to_string(launcher);
}

}  // namespace hvd::launcher
