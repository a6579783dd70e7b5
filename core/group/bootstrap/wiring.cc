#include "core/group/bootstrap/wiring.h"

#include <algorithm>
#include <utility>

#include "core/base/assert.h"
#include "core/group/link_group.h"
#include "core/group/shm_group.h"

namespace hvd {

std::unique_ptr<Group> Wiring::make_group(const std::vector<int>& ranks) {
  const int host = topology.host_of[static_cast<size_t>(identity.rank)];
  const auto& neighbours = topology.host_ranks[static_cast<size_t>(host)];
  const bool on_this_host = std::includes(neighbours.begin(), neighbours.end(), ranks.begin(), ranks.end());
  if (!on_this_host || !segment) {
    if (!mesh) mesh = std::make_unique<Mesh>();  // a group of this rank alone
    return std::make_unique<LinkGroup>(*mesh, ranks, identity.rank);
  }
  std::vector<int> local_ranks;
  for (const int rank : ranks) {
    const auto at = std::find(neighbours.begin(), neighbours.end(), rank);
    local_ranks.push_back(static_cast<int>(at - neighbours.begin()));
  }
  return std::make_unique<ShmGroup>(segment->staging(), std::move(local_ranks));
}

}  // namespace hvd
