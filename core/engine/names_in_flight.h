// The names of the operations of this rank between submission and completion. A second operation
// with the same name is rejected at submission, on the calling thread.
#pragma once

#include <mutex>
#include <span>
#include <unordered_set>

#include "core/engine/request.h"

namespace hvd {

/// Any thread may call any function.
class NamesInFlight {
 public:
  /// Adds the names of all `requests` and returns nullptr. If a name is in flight or occurs twice
  /// in `requests`, adds none and returns the first such request.
  const Request* add(std::span<const Request> requests);
  /// Removes the names of requests that have ended or were not queued.
  void remove(std::span<const Request> requests);

 private:
  /// Names are matched within a process set.
  struct Key {
    GroupNumber group = kWorldGroup;
    NameHash name{};
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const noexcept {
      return std::hash<NameHash>()(key.name) + key.group;
    }
  };

  static Key key_of(const Request& request) { return {request.group, request.signature.name}; }
  void remove_locked(std::span<const Request> requests);

  std::mutex mutex_;
  std::unordered_set<Key, Hash> keys_;  ///< under mutex_
};

}  // namespace hvd
