// Which worker has which rank in one generation of a job. A value that a pure function computes
// anew for each generation. The launcher makes it and numbers the generations.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/transport/worker_id.h"

namespace hvd::launcher {

/// The ranks and sizes of a worker in one generation. `cross_rank` is the worker's position among
/// the workers with the same local rank, by host in rank order.
struct RankAssignment {
  uint32_t generation = 0;
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  int cross_rank = 0;
  int cross_size = 1;
  bool operator==(const RankAssignment&) const = default;
};

struct AssignedWorker {
  WorkerId id;
  RankAssignment ranks;
  /// False for a new worker of an elastic job, whose size is 0: it gets its place later.
  bool is_placed() const { return ranks.size > 0; }
  /// Rank 0 of the first generation reads the launcher's standard input; other ranks have none.
  bool reads_input() const { return is_placed() && ranks.generation == 0 && ranks.rank == 0; }
  bool operator==(const AssignedWorker&) const = default;
};

inline AssignedWorker without_place(const WorkerId& worker) { return {worker, {.size = 0}}; }

class Assignment {
 public:
  Assignment() = default;

  uint32_t generation() const { return generation_; }
  int size() const { return static_cast<int>(workers_.size()); }
  /// By rank.
  const std::vector<AssignedWorker>& workers() const { return workers_; }
  const WorkerId& worker(int rank) const { return workers_[static_cast<size_t>(rank)].id; }
  std::optional<int> rank_of(const WorkerId& worker) const;
  /// Returns the workers of a host, which have consecutive ranks.
  std::span<const AssignedWorker> on_host(int host) const;
  bool operator==(const Assignment&) const = default;

 private:
  friend Assignment assign_ranks(std::vector<WorkerId> workers, uint32_t generation);
  friend Assignment reassign_ranks(const Assignment& before, std::vector<WorkerId> workers);
  Assignment(const std::vector<WorkerId>& in_order, uint32_t generation);

  uint32_t generation_ = 0;
  std::vector<AssignedWorker> workers_;
};

/// Ranks ascend over the hosts in order, and on each host over its slots.
Assignment assign_ranks(std::vector<WorkerId> workers, uint32_t generation);

/// Computes the next generation. Workers of the previous one keep their order, so that the lowest
/// ranks have the state of the job: hosts with such workers come first, and on each host they come
/// before new workers.
Assignment reassign_ranks(const Assignment& before, std::vector<WorkerId> workers);

}  // namespace hvd::launcher
