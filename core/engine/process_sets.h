// The process sets of a job: what the ids of the interface stand for. The driver writes where sets
// come and go in the stream, so all ranks give the same ids; any thread reads.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/group/bootstrap/wiring.h"
#include "core/negotiate/signature.h"

namespace hvd {

/// A value.
struct ProcessSet {
  GroupNumber group = kWorldGroup;
  std::vector<int> ranks{};  ///< global, ascending

  /// All ranks of a job.
  static ProcessSet of_all(int size);
  int size() const { return static_cast<int>(ranks.size()); }
  /// The rank within the set of a global rank, kNoRank for none.
  int rank_of(int global_rank) const;
};

/// "[0, 2, 3]"; of many ranks only the first and how many more.
std::string to_text_of_ranks(const std::vector<int>& ranks);

class ProcessSets {
 public:
  static constexpr int32_t kWorldId = 0;

  explicit ProcessSets(int world_size);

  /// nullptr for an unknown id.
  std::shared_ptr<const ProcessSet> find(int32_t id) const;
  /// nullptr for an unknown group.
  std::shared_ptr<const ProcessSet> find_group(GroupNumber group) const;
  /// Why no set of `ranks` (ascending) can be added: it is empty, has a rank twice or outside the
  /// job, or is there already. "" when it can.
  std::string why_not(const std::vector<int>& ranks) const;

  /// Returns the id, which no other set of the job has had: what still refers to one that is gone,
  /// as the graph of a framework does, must not run on another.
  int32_t add(GroupNumber group, std::vector<int> ranks);
  void remove(GroupNumber group);

 private:
  mutable std::mutex mutex_;
  std::map<int32_t, std::shared_ptr<const ProcessSet>> sets_;  ///< by id
  int32_t next_ = kWorldId + 1;
};

/// What the ranks must agree on before a job begins with these sets (each ascending). Refused when
/// one of them cannot be added to those before it.
Terms terms_of_sets(const std::vector<std::vector<int>>& sets, int world_size);

}  // namespace hvd
