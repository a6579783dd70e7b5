// The interface through which the progress thread sleeps: an epoll over sockets, processes and this
// rank's doorbell.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/clock.h"

namespace hvd {

/// `watch`, `poll` and `wait` require the progress token; `ring` may be called from any thread.
class Waiter {
 public:
  virtual ~Waiter() = default;

  /// Reports `tag` whenever `fd` is readable (level-triggered), closed or in error.
  virtual void watch(int fd, uint64_t tag) = 0;
  /// Reports `tag` only when `fd` is closed by its other end or in error.
  virtual void watch_end(int fd, uint64_t tag) = 0;
  /// Also reports `tag` when `fd` is writable, if `on`. Does nothing if `fd` is not watched.
  virtual void watch_writable(int fd, uint64_t tag, bool on) = 0;
  virtual void forget(int fd) = 0;

  /// Appends the ready tags; never sleeps. Also consumes a ring of the doorbell: the caller must
  /// check everything that a ring may signal before the next wait().
  virtual void poll(std::vector<uint64_t>& ready) = 0;
  /// Sleeps until a descriptor is ready, the doorbell rings, or `until` (nullopt: no timeout).
  virtual void wait(std::optional<TimePoint> until, std::vector<uint64_t>& ready) = 0;

  /// Sleeps like wait() but consumes nothing and does not require the progress token, so that other
  /// threads can detect when progress is needed.
  virtual void park(std::optional<TimePoint> until) = 0;

  /// Wakes the current or the next wait() or park(). Async-signal-safe.
  virtual void ring() = 0;
  /// The eventfd that local peers write to wake this rank; -1 if there is none.
  virtual int doorbell_fd() const = 0;
};

}  // namespace hvd
