#include "core/bootstrap/local_ranks.h"

#include <algorithm>

namespace hvd {

void complete_local_ranks(Identity& identity, const std::vector<PeerCard>& cards) {
  if (cards.empty()) return;
  const Topology topology = topology_of(cards, false);
  const int host = topology.host_of[static_cast<size_t>(identity.rank)];
  if (!identity.local_known) {
    const auto& ranks = topology.host_ranks[static_cast<size_t>(host)];
    identity.local_rank =
        static_cast<int>(std::find(ranks.begin(), ranks.end(), identity.rank) - ranks.begin());
    identity.local_size = static_cast<int>(ranks.size());
    identity.local_known = true;
  }
  if (identity.cross_known) return;
  const auto has_local_rank = [&](const std::vector<int>& ranks) {
    return static_cast<int>(ranks.size()) > identity.local_rank;
  };
  const auto& hosts = topology.host_ranks;
  identity.cross_rank =
      static_cast<int>(std::count_if(hosts.begin(), hosts.begin() + host, has_local_rank));
  identity.cross_size = static_cast<int>(std::count_if(hosts.begin(), hosts.end(), has_local_rank));
  identity.cross_known = true;
}

}  // namespace hvd
