// The operations of graph nodes that are in flight in this process.
//
// Ranks match operations by the name of the node. If a node runs again before its last run has
// ended, ranks cannot match the runs: the order differs per rank, and matching by order would
// silently give wrong results. Therefore it ends the job.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace hvd::tf {

/// Any thread may call any function.
class InFlight {
 public:
  /// A name in a process set.
  using Key = std::pair<int32_t, std::string>;

  /// The instance of this process.
  static InFlight& instance();

  /// Adds `key`. Returns false, without a change, if it is in flight already.
  bool add(const Key& key);
  /// Sets the reason why all operations in flight will fail, unless they have one, and why job
  /// `generation` ends. Returns whether any was set.
  bool blame(const std::string& why, uint32_t generation);
  /// Removes `key`. Returns the reason set by blame() since add(), "" if there is none.
  std::string remove(const Key& key);
  /// The first reason set by blame() for job `generation`, "" if there is none.
  std::string why_ended(uint32_t generation) const;
  /// The first reason set by blame() for the last job that it ended, "" if there is none.
  std::string why_ended() const;

 private:
  mutable std::mutex mutex_;
  std::map<Key, std::string> reasons_;  ///< per operation in flight; under mutex_
  std::string why_ended_;               ///< under mutex_
  uint32_t ended_generation_ = 0;       ///< of the job that ended for that reason; under mutex_
};

}  // namespace hvd::tf
