// Where framework threads and the driver meet: many push, one drains.
#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

namespace hvd {

/// A bounded queue, many to one. `push` never blocks; `drain` takes all there is.
template <class T>
class Inbox {
 public:
  /// More operations than this in flight on one rank are a mistake of the caller, not a load.
  static constexpr size_t kLimit = size_t{1} << 20;

  enum class Pushed { first, more, full, closed };

  /// `first`: the queue was empty, so the driver may be asleep. When `full` or `closed`, `value` is
  /// untouched.
  Pushed push(T&& value) {
    const std::lock_guard lock(mutex_);
    if (closed_) return Pushed::closed;
    if (queue_.size() >= kLimit) return Pushed::full;
    queue_.push_back(std::move(value));
    return queue_.size() == 1 ? Pushed::first : Pushed::more;
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

  /// From now on push answers `closed`; what is inside can still be drained.
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
