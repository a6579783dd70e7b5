// What the launcher has gathered from the ranks of all hosts, as horovodrun --dump gets it. Pure.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/dump/rank_report.h"

namespace hvd::launcher {

struct Gathered {
  std::vector<RankReport> reports{};   ///< ascending by rank
  std::vector<std::string> remarks{};  ///< lines about hosts that have not answered
};
/// Adds the ranks that are not in the reports, by the size of the job that they tell.
void add_unknown_ranks(std::vector<RankReport>& reports);
std::string to_text(const Gathered& all);
/// None if malformed.
std::optional<Gathered> read_gathered(std::string_view text);

/// What --dump-host and --states-of-host print: a JSON array.
std::string to_text(const std::vector<RankReport>& reports);
/// None if malformed.
std::optional<std::vector<RankReport>> reports_in(std::string_view text);

/// The abstract unix socket of a launcher.
inline constexpr std::string_view kDumpSocket = "horovod-dump-";
std::string dump_socket_of(pid_t launcher);

}  // namespace hvd::launcher
