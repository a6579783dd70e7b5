#include "job/job.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "job/options/environment.h"

namespace hvd::job {

int Job::ranks() const {
  int ranks = 0;
  for (const JobHost& host : hosts) ranks += static_cast<int>(host.places.size());
  return ranks;
}

const JobHost& Job::host_of(int rank) const {
  return *std::ranges::find_if(
      hosts, [rank](const JobHost& host) { return rank <= host.places.back().rank; });
}

std::vector<std::string> describe(const Job& job, uint16_t store_port) {
  std::vector<std::string> lines;
  for (const JobHost& host : job.hosts)
    lines.push_back(fmt::format("{} processes on {}: ranks {} to {}", host.places.size(), host.name,
                                host.places.front().rank, host.places.back().rank));
  lines.push_back(fmt::format("command: {} (found as {})", fmt::join(job.options.command, " "),
                              job.command.program));
  for (const auto& [name, value] : job.options.knobs)
    lines.push_back(fmt::format("exports {}={} (from a flag or the config file)", name, value));
  std::vector<std::string> names;
  for (const auto& [name, value] : rank_variables(job.hosts.front().places.front()))
    names.push_back(name);
  lines.push_back(fmt::format("exports {} to each rank", fmt::join(names, ", ")));
  if (!job.is_local()) return lines;
  Meeting meeting;
  meeting.store = {kLoopback, store_port};
  meeting.interfaces = job.options.interfaces;
  for (const auto& [name, value] : meeting_variables(job.command.environment, meeting))
    lines.push_back(fmt::format("exports {}={}", name, value));
  return lines;
}

}  // namespace hvd::job
