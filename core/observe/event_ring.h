// A bounded queue of events for the observer. It never blocks the progress engine. When it is full,
// events are dropped and counted.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "core/observe/event.h"

namespace hvd {

/// Any thread may call any function.
class EventRing {
 public:
  /// A few MiB; what the busiest engine records within some linger times of the observer.
  static constexpr size_t kCapacity = size_t{1} << 14;

  /// Makes room for kCapacity events; until then every event is dropped.
  void open();
  void push(Event&& event);

  /// Moves all events into `out`, which the caller has emptied, and behind them, if events were
  /// dropped, an Event::lost with their number.
  void take(std::vector<Event>& out);

  /// Sleeps without a deadline until there is an event, then `linger` longer (less when events come
  /// fast), so that many are taken at once. False when closed.
  bool wait(std::chrono::milliseconds linger);
  /// Ends wait(), now and for ever.
  void close();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Event> events_;
  uint64_t dropped_ = 0;
  TimePoint dropped_last_{};
  bool closed_ = false;
};

}  // namespace hvd
