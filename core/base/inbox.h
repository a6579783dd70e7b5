// The queue from framework threads to the progress engine: many producers, one consumer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace hvd {

/// The result of a push.
enum class Pushed : uint8_t { accepted, full, closed };

/// A bounded multi-producer, single-consumer queue. `push` never blocks; `drain` takes all
/// elements. The queue is closed with a reason under the same lock, so a rejected caller can always
/// read the reason.
template <class T, class Reason>
class Inbox {
 public:
  /// More operations in flight on one rank indicate a mistake of the caller.
  static constexpr size_t kLimit = size_t{1} << 20;

  /// `value` is unchanged unless accepted.
  Pushed push(T&& value) { return push_all(std::span(&value, 1)); }

  /// Pushes all of `values` or none of them. Accepted values are moved from.
  Pushed push_all(std::span<T> values) {
    const std::lock_guard lock(mutex_);
    if (closed_) return Pushed::closed;
    if (queue_.size() + values.size() > kLimit) return Pushed::full;
    append(values);
    return Pushed::accepted;
  }

  /// Ignores kLimit, for values that must not be rejected because the queue is full.
  Pushed push_beyond_limit(T&& value) {
    const std::lock_guard lock(mutex_);
    if (closed_) return Pushed::closed;
    append(std::span(&value, 1));
    return Pushed::accepted;
  }

  /// Moves all elements into `out`, which must be empty; keeps the capacity of both.
  void drain(std::vector<T>& out) {
    const std::lock_guard lock(mutex_);
    out.swap(queue_);
  }

  bool empty() const {
    const std::lock_guard lock(mutex_);
    return queue_.empty();
  }

  /// Every later push returns `closed`; queued elements can still be drained. May be called again
  /// with another reason.
  void close(Reason reason) {
    const std::lock_guard lock(mutex_);
    closed_ = std::move(reason);
  }
  /// Returns the reason, or nullopt while the queue is open.
  std::optional<Reason> why_closed() const {
    const std::lock_guard lock(mutex_);
    return closed_;
  }

 private:
  void append(std::span<T> values) {
    queue_.insert(queue_.end(), std::move_iterator(values.begin()),
                  std::move_iterator(values.end()));
  }

  mutable std::mutex mutex_;
  std::vector<T> queue_;
  std::optional<Reason> closed_;
};

}  // namespace hvd
