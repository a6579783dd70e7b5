#include "core/negotiate/topology.h"

#include <algorithm>

#include "core/base/assert.h"

namespace hvd {

int Topology::child_hosts(int host) const {
  return std::clamp(hosts() - first_child_host(host), 0, fan_out);
}

int Topology::children(int host) const {
  return static_cast<int>(host_ranks[host].size()) + child_hosts(host);
}

int Topology::child_towards(int host, int rank) const {
  HVD_ASSERT(rank >= 0 && rank < ranks());
  const std::vector<int>& local = host_ranks[host];
  int below = host_of[rank];
  if (below == host) {
    return static_cast<int>(std::find(local.begin(), local.end(), rank) - local.begin());
  }
  while (below > host && parent_host(below) != host) below = parent_host(below);
  if (below <= host) return -1;  // parents have lower numbers than their children
  return static_cast<int>(local.size()) + below - first_child_host(host);
}

int Topology::rank_of_child(int host, int child) const {
  const int local_ranks = static_cast<int>(host_ranks[host].size());
  return child < local_ranks ? host_ranks[host][child]
                             : leader(first_child_host(host) + child - local_ranks);
}

int Topology::levels_below(int host) const {
  int levels = 0;
  // The leftmost path is the longest.
  while (child_hosts(host) > 0) {
    host = first_child_host(host);
    ++levels;
  }
  return levels;
}

Topology Topology::of(const std::vector<int>& ranks_per_host, int fan_out) {
  Topology topology;
  topology.fan_out = fan_out;
  for (const int count : ranks_per_host) {
    std::vector<int>& local = topology.host_ranks.emplace_back();
    for (int i = 0; i < count; ++i) {
      local.push_back(topology.ranks());
      topology.host_of.push_back(topology.hosts() - 1);
    }
  }
  return topology;
}

}  // namespace hvd
