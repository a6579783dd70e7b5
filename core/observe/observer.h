// Passes events of the engine to sinks: a ring of events, and a thread that calls the sinks. While
// there is no sink, nothing is recorded and there is no thread.
#pragma once

#include <atomic>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "core/observe/event.h"
#include "core/observe/event_ring.h"

namespace hvd {

/// Someone who listens: the timeline, and whatever else is made of events. The Observer calls it
/// from one thread at a time.
class Sink {
 public:
  virtual ~Sink() = default;
  /// Not empty; in the order in which they were recorded. Must not throw.
  virtual void take(std::span<const Event> events) = 0;
};

/// Any thread may call any function; construction and destruction belong to one.
class Observer {
 public:
  Observer() = default;
  ~Observer();

  /// To be called before an Event is built: there is none to record if it returns false.
  bool listening() const { return listening_.load(std::memory_order_relaxed); }
  /// Never blocks on a sink.
  void record(Event&& event) { ring_.push(std::move(event)); }

  /// From now on `sink` gets events, and none that were recorded before. It must be removed before
  /// it ends.
  void add(Sink& sink);
  /// Returns when `sink` has everything that was recorded until now; it gets nothing more.
  void remove(Sink& sink);

 private:
  void main();
  void deliver();

  EventRing ring_;
  // Relaxed, without a partner: an event that is recorded or not just as this changes may go either
  // way, and events themselves pass through the lock of the ring.
  std::atomic<bool> listening_{false};
  std::mutex mutex_;          ///< held while sinks are called; never by a thread that records
  std::vector<Sink*> sinks_;  ///< under mutex_
  std::vector<Event> taken_;  ///< under mutex_
  std::thread thread_;        ///< under mutex_; runs from the first add() on
};

}  // namespace hvd
