// The operations that nodes of graphs have in flight in this process.
//
// Ranks match operations by name, which is the node's. If a node runs again before its last run has
// ended, nothing says which runs of the ranks belong together: each rank has its own order, so to
// pair them by order would give wrong results silently. Therefore it ends the job.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace hvd::tf {

/// Any thread may call.
class InFlight {
 public:
  /// A name in a process set.
  using Key = std::pair<int32_t, std::string>;

  /// The one of this process.
  static InFlight& instance();

  /// Notes that `key` is in flight. False when it is already; then nothing has changed.
  bool add(const Key& key);
  /// Says why all that is in flight now will fail. False when that has been said before.
  bool blame(const std::string& why);
  /// Notes that `key` has ended. Returns what `blame` has said since `add`, "" for nothing.
  std::string remove(const Key& key);

 private:
  std::mutex mutex_;
  std::map<Key, std::string> reasons_;  ///< of what is in flight; under mutex_
};

}  // namespace hvd::tf
