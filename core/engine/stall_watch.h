// Reports operations that wait for other ranks for long, and ends the job if a time is over: that
// of an operation, or of the knobs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "core/base/clock.h"
#include "core/base/knobs.h"
#include "core/engine/control.h"
#include "core/engine/event_source.h"
#include "core/engine/request.h"
#include "core/negotiate/stall.h"

namespace hvd {

/// For the holder of the progress token.
class StallWatch {
 public:
  /// The arguments must outlive the StallWatch. `rank`: of this process.
  StallWatch(Control& control, EventSource& events, const Knobs& knobs, const Clock& clock,
             int rank)
      : control_(control), events_(events), knobs_(knobs), clock_(clock), rank_(rank) {}

  /// A request has been accepted. Sets `expires` if it has a timeout.
  void accepted(Request& request);
  /// Does what is due. `waiting`: the requests between acceptance and agreement.
  void check(std::map<uint64_t, Request>& waiting);
  /// The time at which check() must be called without any event.
  std::optional<TimePoint> deadline() const;

 private:
  void look(std::map<uint64_t, Request>& waiting);
  void put_off(std::map<uint64_t, Request>& waiting, Duration by);
  void expire(std::map<uint64_t, Request>& waiting);
  void report(Root& root, const StallReport& stalled);
  void tick();

  Control& control_;
  EventSource& events_;
  const Knobs& knobs_;
  const Clock& clock_;
  const int rank_;
  std::optional<TimePoint> next_tick_;
  std::optional<TimePoint> next_timeout_;  ///< not after the first one of the waiting requests
  TimePoint looked_at_{};                  ///< the last look(), if there is a next_timeout_
};

}  // namespace hvd
