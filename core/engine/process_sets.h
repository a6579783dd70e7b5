// The process sets of a job by id. The progress engine adds and removes sets in the order of the
// verdicts, so all ranks assign the same ids. Any thread may read.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/bootstrap/wiring.h"
#include "core/negotiate/signature.h"

namespace hvd {

/// A process set. A value type.
struct ProcessSet {
  GroupNumber group = kWorldGroup;
  std::vector<int> ranks{};  ///< global, ascending

  /// The set of all ranks of a job.
  static ProcessSet of_all(int size);
  int size() const { return static_cast<int>(ranks.size()); }
  /// Returns the rank of a global rank within the set, kNoRank if it is not a member.
  int rank_of(int global_rank) const;
};

/// Returns e.g. "[0, 2, 3]". Long lists are cut and end with the number of ranks left out.
std::string to_text_of_ranks(const std::vector<int>& ranks);

class ProcessSets {
 public:
  static constexpr int32_t kWorldId = 0;

  explicit ProcessSets(int world_size);

  /// Returns nullptr for an unknown id.
  std::shared_ptr<const ProcessSet> find(int32_t id) const;
  /// Returns nullptr for an unknown group.
  std::shared_ptr<const ProcessSet> find_group(GroupNumber group) const;
  /// Returns why a set of `ranks` (ascending) cannot be added: it is empty, has a duplicate rank or
  /// a rank outside the job, or exists already. Returns "" if it can be added.
  std::string why_not(const std::vector<int>& ranks) const;

  /// Adds a set and returns its id. Ids are never reused: a graph of a framework may still refer to
  /// a removed set and must not run on another one.
  int32_t add(GroupNumber group, std::vector<int> ranks);
  void remove(GroupNumber group);

 private:
  mutable std::mutex mutex_;
  std::map<int32_t, std::shared_ptr<const ProcessSet>> sets_;  ///< by id
  int32_t next_ = kWorldId + 1;
};

/// Returns the terms on which all ranks must agree before a job starts with `sets` (each
/// ascending). The terms contain a refusal if a set cannot be added.
Terms terms_of_sets(const std::vector<std::vector<int>>& sets, int world_size);

}  // namespace hvd
