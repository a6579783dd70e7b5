// The one-shot completion of a submitted operation. The progress engine completes it exactly once;
// any thread may test or wait. Destroying a pending Handle is a bug.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>

#include "core/base/assert.h"
#include "core/base/error.h"

namespace hvd {

/// The result of an operation. `rank` is the rank that caused an error, or kNoRank.
struct Outcome {
  Code code = Code::ok;
  std::string text;
  int rank = kNoRank;
};

class Handle {
 public:
  Handle() = default;
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { HVD_ASSERT(done()); }

  /// Called once, by the thread that holds the progress token.
  void complete(Outcome outcome) {
    const std::lock_guard lock(mutex_);
    HVD_ASSERT(!done_.load(std::memory_order_relaxed));
    outcome_ = std::move(outcome);
    done_.store(true, std::memory_order_release);  // partner: done()
    changed_.notify_all();
  }

  bool done() const { return done_.load(std::memory_order_acquire); }

  /// Blocks until complete.
  void wait() const {
    if (done()) return;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return done_.load(std::memory_order_relaxed); });
  }
  /// Blocks until complete, at most for `patience`. Returns whether it is complete.
  bool wait_for(std::chrono::microseconds patience) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, patience,
                             [this] { return done_.load(std::memory_order_relaxed); });
  }

  /// Requires done().
  const Outcome& outcome() const {
    HVD_ASSERT(done());
    return outcome_;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::atomic<bool> done_{false};
  Outcome outcome_;
};

}  // namespace hvd
