#include "launcher/worker/assignment.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace hvd::launcher {

Assignment::Assignment(const std::vector<WorkerId>& in_order, uint32_t generation)
    : generation_(generation) {
  std::map<int, int> workers_on;  // by host
  std::map<int, int> hosts_with;  // by local rank
  for (const WorkerId& id : in_order) {
    RankAssignment ranks{.generation = generation,
                         .rank = size(),
                         .size = static_cast<int>(in_order.size()),
                         .local_rank = workers_on[id.host]++};
    ranks.cross_rank = hosts_with[ranks.local_rank]++;
    workers_.push_back({id, ranks});
  }
  for (AssignedWorker& worker : workers_) {
    worker.ranks.local_size = workers_on[worker.id.host];
    worker.ranks.cross_size = hosts_with[worker.ranks.local_rank];
  }
}

std::optional<int> Assignment::rank_of(const WorkerId& worker) const {
  const auto found = std::ranges::find(workers_, worker, &AssignedWorker::id);
  if (found == workers_.end()) return std::nullopt;
  return found->ranks.rank;
}

std::span<const AssignedWorker> Assignment::on_host(int host) const {
  const auto is_there = [host](const AssignedWorker& worker) { return worker.id.host == host; };
  const auto first = std::ranges::find_if(workers_, is_there);
  return {first, std::find_if_not(first, workers_.end(), is_there)};
}

Assignment assign_ranks(std::vector<WorkerId> workers, uint32_t generation) {
  std::ranges::sort(workers);
  return {workers, generation};
}

Assignment reassign_ranks(const Assignment& before, std::vector<WorkerId> workers) {
  const int behind_all = before.size();
  std::map<int, int> lowest_on;  // by host: the lowest rank before
  for (const WorkerId& worker : workers) {
    const auto lowest = lowest_on.emplace(worker.host, behind_all).first;
    lowest->second = std::min(lowest->second, before.rank_of(worker).value_or(behind_all));
  }
  std::ranges::sort(workers, {}, [&](const WorkerId& worker) {
    const int rank_before = before.rank_of(worker).value_or(behind_all);
    return std::tuple(lowest_on[worker.host], worker.host, rank_before, worker.slot);
  });
  return {workers, before.generation() + 1};
}

}  // namespace hvd::launcher
