#include "launcher/job.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "launcher/options/environment.h"

namespace hvd::launcher {

namespace {

std::string describe(const Job& job, int host) {
  const auto workers = job.assignment.on_host(host);
  if (workers.empty())
    return fmt::format("no processes yet on {}", job.hosts[static_cast<size_t>(host)].name);
  return fmt::format("{} processes on {}: ranks {} to {}", workers.size(),
                     job.hosts[static_cast<size_t>(host)].name, workers.front().ranks.rank,
                     workers.back().ranks.rank);
}

}  // namespace

std::optional<Assignment> assignment_without_missing(const Job& job) {
  std::vector<Host> hosts;
  int slots = 0;
  for (const JobHost& host : job.hosts) {
    hosts.push_back({host.name, host.missing ? 0 : host.slots});
    slots += hosts.back().slots;
  }
  const int workers = std::min(slots, job.assignment.size());
  if (!job.elastic || workers < std::max(job.elastic->min, 1)) return std::nullopt;
  return assign_ranks(first_workers(filled(hosts, workers)), job.assignment.generation());
}

Environment master_variables(const Job& job, const WorkerId& rank_zero, uint16_t port) {
  Environment variables;
  const JobHost& first = job.host_of(rank_zero);
  const std::string& reached = first.local ? job.own_name : first.name;
  if (job.chooses_master_address) variables["MASTER_ADDR"] = job.is_local() ? kLoopback : reached;
  if (job.chooses_master_port) variables["MASTER_PORT"] = fmt::format("{}", port);
  return variables;
}

std::vector<std::string> describe(const Job& job, uint16_t store_port) {
  std::vector<std::string> lines;
  for (size_t host = 0; host < job.hosts.size(); ++host)
    lines.push_back(describe(job, static_cast<int>(host)));
  lines.push_back(fmt::format("command: {} (found as {})", fmt::join(job.options.command, " "),
                              job.command.program));
  for (const auto& [name, value] : job.options.knobs)
    lines.push_back(fmt::format("exports {}={} (from a flag or the config file)", name, value));
  std::vector<std::string> names;
  for (const auto& [name, value] : rank_variables("", RankAssignment())) names.push_back(name);
  lines.push_back(fmt::format("exports {} to each rank", fmt::join(names, ", ")));
  if (!job.is_local()) return lines;
  StoreAddress address;
  address.store = {kLoopback, store_port};
  address.interfaces = job.options.interfaces;
  for (const auto& [name, value] : host_variables(job.command.environment, address))
    lines.push_back(fmt::format("exports {}={}", name, value));
  return lines;
}

}  // namespace hvd::launcher
