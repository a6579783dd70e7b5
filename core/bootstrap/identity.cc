#include "core/bootstrap/identity.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/base/error.h"
#include "core/bootstrap/launchers/launchers.h"
#include "core/bootstrap/peer_card.h"

namespace hvd {
namespace {

// In the order in which they are tried. horovodrun is first, since it may run below another
// launcher; torchrun comes before Slurm, since srun may start its agents.
constexpr std::array kLaunchers{from_horovodrun, from_pmi,   from_open_mpi,  from_jsrun,
                                from_torchrun,   from_slurm, from_closed_pmi};

void refuse(const std::vector<int>& members, const std::string& why) {
  fail(Code::invalid_argument, fmt::format("a job of {}: {}", ranks_text(members), why));
}

}  // namespace

Identity identity_from(const Environment& environment) {
  for (const auto launcher : kLaunchers) {
    if (auto identity = launcher(environment)) return *std::move(identity);
  }
  return Identity();
}

Identity identity_at(std::string launcher, RankAndSize world, std::optional<RankAndSize> local) {
  Identity identity;
  identity.launcher = std::move(launcher);
  identity.rank = world.rank;
  identity.size = world.size;
  identity.local_known = local.has_value();
  identity.cross_known = false;
  if (local) identity.local_rank = local->rank, identity.local_size = local->size;
  return identity;
}

Identity part_of(Identity whole, std::vector<int> members) {
  if (members.empty()) fail(Code::invalid_argument, "a job needs at least one rank");
  std::sort(members.begin(), members.end());
  if (std::adjacent_find(members.begin(), members.end()) != members.end())
    refuse(members, "a rank is listed twice");
  if (members.front() < 0 || members.back() >= whole.size)
    refuse(members, fmt::format("the launcher started only ranks 0 to {}", whole.size - 1));
  const auto own = std::lower_bound(members.begin(), members.end(), whole.rank);
  if (own == members.end() || *own != whole.rank) {
    refuse(members, fmt::format("rank {} calls init with this list but is not in it; call init "
                                "there with a list that contains it, or not at all",
                                whole.rank));
  }
  if (static_cast<int>(members.size()) == whole.size) return whole;
  whole.rank = static_cast<int>(own - members.begin());
  whole.size = static_cast<int>(members.size());
  whole.local_known = whole.cross_known = false;
  whole.members = std::move(members);
  return whole;
}

}  // namespace hvd
