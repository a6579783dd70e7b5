// The operations of callers by handle. Handles are never reused, also not by a later generation. An
// operation outlives its Context, so its result can be fetched after a shutdown.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/capi/context.h"
#include "horovod/horovod.h"

namespace hvd {

/// Any thread may call any function.
class HandleTable {
 public:
  struct Entry {
    std::shared_ptr<Completion> completion;
    std::weak_ptr<Context> context;
    uint32_t forks = 0;  ///< forks between the first process and the submitting process
  };

  hvd_handle add(Entry entry) {
    const std::lock_guard lock(mutex_);
    entries_.emplace(next_, std::move(entry));
    return next_++;
  }
  /// Adds entries for `completions` in order and stores their handles. The other fields are copied
  /// from `others`.
  void add_all(std::span<const std::shared_ptr<Completion>> completions, const Entry& others,
               hvd_handle* handles) {
    const std::lock_guard lock(mutex_);
    for (const auto& completion : completions) {
      entries_.emplace(next_, Entry{completion, others.context, others.forks});
      *handles++ = next_++;
    }
  }
  /// Removes and returns entries. The entry of an unknown or freed handle is empty.
  std::vector<Entry> take(std::span<const hvd_handle> handles) {
    std::vector<Entry> taken(handles.size());
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < handles.size(); ++i) {
      const auto found = entries_.find(handles[i]);
      if (found == entries_.end()) continue;
      taken[i] = std::move(found->second);
      entries_.erase(found);
    }
    return taken;
  }
  /// Returns an empty entry for an unknown or freed handle.
  Entry find(hvd_handle handle) const {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(handle);
    return found == entries_.end() ? Entry{} : found->second;
  }
  void remove(hvd_handle handle) {
    Entry removed;  // destroyed outside the lock
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(handle);
    if (found == entries_.end()) return;
    removed = std::move(found->second);
    entries_.erase(found);
  }

  std::mutex& mutex() { return mutex_; }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<hvd_handle, Entry> entries_;
  hvd_handle next_ = 1;
};

}  // namespace hvd
