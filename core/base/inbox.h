// Where framework threads and the driver meet: many push, one drains.
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

/// What became of a push.
enum class Pushed : uint8_t { accepted, full, closed };

/// A bounded queue, many to one. `push` never blocks; `drain` takes all there is. It is closed with
/// a reason, under the same lock, so a caller that is refused because it is closed can always read
/// why.
template <class T, class Reason>
class Inbox {
 public:
  /// More operations than this in flight on one rank are a mistake of the caller, not a load.
  static constexpr size_t kLimit = size_t{1} << 20;

  /// `value` is untouched unless it is accepted.
  Pushed push(T&& value) { return push_all(std::span(&value, 1)); }

  /// All of `values` together, or none of them; those that are accepted are moved from.
  Pushed push_all(std::span<T> values) {
    const std::lock_guard lock(mutex_);
    if (closed_) return Pushed::closed;
    if (queue_.size() + values.size() > kLimit) return Pushed::full;
    append(values);
    return Pushed::accepted;
  }

  /// For a value that must not be lost because others were too many.
  Pushed push_beyond_limit(T&& value) {
    const std::lock_guard lock(mutex_);
    if (closed_) return Pushed::closed;
    append(std::span(&value, 1));
    return Pushed::accepted;
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

  /// From now on every push answers `closed`; what is inside can still be drained. May be called
  /// again with another reason.
  void close(Reason reason) {
    const std::lock_guard lock(mutex_);
    closed_ = std::move(reason);
  }
  /// Nothing while it is open.
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
