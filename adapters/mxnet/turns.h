// The operations in flight. Those of one name run one after another.
//
// MXNet's engine starts operations when their arrays are ready, in any order. Ranks match
// operations by name, so two of one name must start in the order in which the program has pushed
// them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace hvd::mxnet {

class Call;

/// Any thread may call any function. A call of a parent process, which a forked child does not
/// know, is alone.
class Turns {
 public:
  /// A name in a process set.
  using Key = std::pair<int32_t, std::string>;

  /// Adds a call behind the others of its name.
  void add(const Key& key, Call* call);
  /// The call can start. Returns whether it is its turn. If not, the end of the one before it
  /// returns it.
  bool ready(const Key& key, Call* call);
  /// Removes a call, whether or not it has started. Returns the call that is to start now, or
  /// nullptr.
  Call* remove(const Key& key, Call* call);
  /// Waits until there is no call, at most for `patience`. Returns whether there is none.
  bool wait_until_empty(std::chrono::milliseconds patience);

 private:
  struct Place {
    Call* call;
    bool is_ready;
  };
  using Queue = std::deque<Place>;

  static Queue::iterator find(Queue& queue, const Call* call);

  std::mutex mutex_;
  std::condition_variable emptied_;
  std::map<Key, Queue> queues_;  ///< under mutex_; no queue is empty
};

}  // namespace hvd::mxnet
