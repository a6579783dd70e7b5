// Where framework threads and the driver meet: many push, one drains.
#pragma once

#include <cstddef>
#include <iterator>
#include <mutex>
#include <span>
#include <vector>

namespace hvd {

/// A bounded queue, many to one. `push` never blocks; `drain` takes all there is.
template <class T>
class Inbox {
 public:
  /// More operations than this in flight on one rank are a mistake of the caller, not a load.
  static constexpr size_t kLimit = size_t{1} << 20;

  /// False when it is full or closed; then `value` is untouched.
  bool push(T&& value) {
    const std::lock_guard lock(mutex_);
    if (closed_ || queue_.size() >= kLimit) return false;
    queue_.push_back(std::move(value));
    return true;
  }

  /// All of `values` together, which are empty afterwards, or, when there is no room, none.
  bool push_all(std::span<T> values) {
    const std::lock_guard lock(mutex_);
    if (closed_ || queue_.size() + values.size() > kLimit) return false;
    queue_.insert(queue_.end(), std::move_iterator(values.begin()),
                  std::move_iterator(values.end()));
    return true;
  }

  /// Moves everything into `out`, which the caller has emptied; keeps the capacity of both.
  void drain(std::vector<T>& out) {
    const std::lock_guard lock(mutex_);
    out.swap(queue_);
  }

  bool empty() const {
    const std::lock_guard lock(mutex_);
    return queue_.empty();
  }

  /// From now on push answers false; what is inside can still be drained.
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<T> queue_;
  bool closed_ = false;
};

}  // namespace hvd
