#include "core/bootstrap/levels.h"

#include <fmt/core.h>

#include <algorithm>

namespace hvd {
namespace {

/// [host] the indices into `ranks` of those on that host; hosts without any are left out.
std::vector<std::vector<int>> indices_by_host(const Topology& topology,
                                              const std::vector<int>& ranks) {
  std::vector<std::vector<int>> hosts(static_cast<size_t>(topology.hosts()));
  for (size_t i = 0; i < ranks.size(); ++i)
    hosts[topology.host_of[ranks[i]]].push_back(static_cast<int>(i));
  std::erase_if(hosts, [](const auto& indices) { return indices.empty(); });
  return hosts;
}

bool are_equal(const std::vector<std::vector<int>>& hosts) {
  const auto differs = [&](const auto& indices) { return indices.size() != hosts[0].size(); };
  return std::ranges::none_of(hosts, differs);
}

/// The variables that enable levels.
std::string names_of_levels(const Knobs& knobs) {
  std::string names;
  const auto add = [&](bool is_set, std::string_view name) {
    if (is_set) names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
  };
  add(knobs.hierarchical_allreduce, "HOROVOD_HIERARCHICAL_ALLREDUCE");
  add(knobs.torus_allreduce, "HOROVOD_TORUS_ALLREDUCE");
  add(knobs.hierarchical_allgather, "HOROVOD_HIERARCHICAL_ALLGATHER");
  return names;
}

}  // namespace

std::optional<Levels> levels_of(const Topology& topology, const std::vector<int>& ranks, int own) {
  const auto hosts = indices_by_host(topology, ranks);
  if (hosts.size() < 2 || hosts[0].size() < 2 || !are_equal(hosts)) return std::nullopt;
  Levels levels;
  const auto is_own = [&](int index) { return ranks[index] == own; };
  for (const std::vector<int>& indices : hosts) {
    levels.all.insert(levels.all.end(), indices.begin(), indices.end());
    if (std::ranges::none_of(indices, is_own)) continue;
    for (const int index : indices) levels.host.push_back(ranks[index]);
  }
  const auto own_index = std::ranges::find(levels.host, own) - levels.host.begin();
  for (const std::vector<int>& indices : hosts) levels.across.push_back(ranks[indices[own_index]]);
  return levels;
}

bool wants_levels(const Knobs& knobs) { return !names_of_levels(knobs).empty(); }

std::string warning_of_levels(const Topology& topology, const Knobs& knobs) {
  if (!wants_levels(knobs) || topology.hosts() < 2) return {};
  const std::string no_effect = names_of_levels(knobs) + " has no effect on ";
  const auto differs = [&](const auto& ranks) {
    return ranks.size() != topology.host_ranks[0].size();
  };
  if (std::ranges::any_of(topology.host_ranks, differs)) {
    std::string text =
        no_effect + "the world: it needs the same number of ranks on every host, but there are";
    for (int host = 0; host < topology.hosts(); ++host)
      text += fmt::format("{} {} on host {}", host > 0 ? "," : "", topology.host_ranks[host].size(),
                          host);
    return text;
  }
  const bool allreduce = knobs.hierarchical_allreduce || knobs.torus_allreduce;
  if (!allreduce || !knobs.deterministic) return {};
  return no_effect +
         "allreduce: HOROVOD_DETERMINISTIC is set, and hierarchical sums depend on the hosts";
}

}  // namespace hvd
