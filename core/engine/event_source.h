// What the engine says of its work to those who observe it: the one place where requests and
// batches become events.
#pragma once

#include <cstdint>
#include <span>

#include "core/backend/backend.h"
#include "core/base/clock.h"
#include "core/engine/request.h"
#include "core/observe/observer.h"

namespace hvd {

/// Called by the holder of the driver token. While nobody listens a call costs one branch.
class EventSource {
 public:
  /// `observer` may be nullptr: nobody will ever listen. `by_mpi`: that moves the tensors.
  EventSource(Observer* observer, const Clock& clock, int rank, bool by_mpi = false)
      : observer_(observer), clock_(clock), rank_(rank), by_mpi_(by_mpi) {}

  /// This rank has submitted the request and tells the others.
  void ready(const Request& request) {
    if (listening()) tell_ready(request);
  }
  /// The engine acts on a verdict.
  void cycle() {
    if (listening()) tell_cycle();
  }
  /// The request stands in the queue of batches.
  void agreed(const Request& request) {
    if (listening()) tell_agreed(request);
  }
  /// The batch with these requests, of which `run` is the running transfer, is about to advance.
  void advancing(std::span<const Request> requests, const Batch& batch, const Run& run) {
    if (listening()) tell_advancing(requests, batch, run);
  }
  /// The request is complete, well or not; its Handle is not yet.
  void done(const Request& request) {
    if (listening()) tell_done(request);
  }

 private:
  bool listening() const { return observer_ != nullptr && observer_->listening(); }
  void tell_ready(const Request& request);
  void tell_cycle();
  void tell_agreed(const Request& request);
  void tell_advancing(std::span<const Request> requests, const Batch& batch, const Run& run);
  void tell_done(const Request& request);
  Event event(Event::Type type, const Request& request) const;

  Observer* const observer_;
  const Clock& clock_;
  const int rank_;
  const bool by_mpi_;
  uint64_t batch_ = 0;                            ///< the last one that was told of ...
  Run::Activity activity_ = Run::Activity::data;  ///< ... and what it did
};

}  // namespace hvd
