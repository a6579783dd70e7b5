// The hosts of a job's ranks, and the negotiation tree over these hosts (fan-out 8).
#pragma once

#include <vector>

namespace hvd {

inline constexpr int kTreeFanOut = 8;

/// A value, equal on all ranks. The leader of a host is its lowest rank; rank 0 is on host 0.
struct Topology {
  std::vector<std::vector<int>> host_ranks;  ///< [host] -> global ranks, ascending
  std::vector<int> host_of;                  ///< [global rank]
  int fan_out = kTreeFanOut;

  int hosts() const { return static_cast<int>(host_ranks.size()); }
  int ranks() const { return static_cast<int>(host_of.size()); }
  int leader(int host) const { return host_ranks[host].front(); }
  bool is_leader(int rank) const { return leader(host_of[rank]) == rank; }
  int parent_host(int host) const { return (host - 1) / fan_out; }  ///< not for host 0
  int first_child_host(int host) const { return host * fan_out + 1; }
  int child_hosts(int host) const;

  /// Number of children of a hub: first the ranks of its host (including its leader), then child
  /// hosts.
  int children(int host) const;
  /// Returns the child through which `rank` is reached, or -1.
  int child_towards(int host, int rank) const;
  /// Returns the global rank that represents a child: the rank itself, or the leader of the child
  /// host.
  int rank_of_child(int host, int child) const;

  /// Returns the number of tree levels below `host`; 0 for a leaf.
  int levels_below(int host) const;

  /// Returns the topology with `ranks_per_host[i]` ranks on host i, in rank order.
  static Topology of(const std::vector<int>& ranks_per_host, int fan_out = kTreeFanOut);
};

}  // namespace hvd
