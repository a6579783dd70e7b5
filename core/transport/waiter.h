// The one place where the driver sleeps: an epoll over sockets, processes and this rank's doorbell.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/clock.h"

namespace hvd {

/// `watch`, `poll` and `wait` belong to the holder of the driver token; `ring` may be called from
/// any thread.
class Waiter {
 public:
  virtual ~Waiter() = default;

  /// Reports `tag` whenever `fd` is readable (level-triggered), closed or in error.
  virtual void watch(int fd, uint64_t tag) = 0;
  /// Also reports `tag` when `fd` can be written. Nothing where `fd` is forgotten.
  virtual void watch_writable(int fd, uint64_t tag, bool on) = 0;
  virtual void forget(int fd) = 0;

  /// Appends the tags that are ready now; never sleeps. Takes a ring of the doorbell too: whoever
  /// calls it looks at all that a ring may stand for before the next wait().
  virtual void poll(std::vector<uint64_t>& ready) = 0;
  /// Sleeps until something is ready, the doorbell rings, or `until` (nullopt: for ever).
  virtual void wait(std::optional<TimePoint> until, std::vector<uint64_t>& ready) = 0;

  /// Sleeps as wait() does but takes nothing and may be called without the token, so that a thread
  /// that does not drive can tell when somebody should.
  virtual void park(std::optional<TimePoint> until) = 0;

  /// Ends the current or the next wait() or park(). Async-signal-safe.
  virtual void ring() = 0;
  /// The eventfd that local peers write to ring us; -1 where there is none.
  virtual int doorbell_fd() const = 0;
};

}  // namespace hvd
