// Converts the requests and batches of the engine into events for an Observer, and counts them.
#pragma once

#include <cstdint>
#include <span>

#include "core/backend/backend.h"
#include "core/base/clock.h"
#include "core/engine/request.h"
#include "core/negotiate/client.h"
#include "core/observe/counters.h"
#include "core/observe/observer.h"

namespace hvd {

/// Called by the holder of the progress token. Counters are always on: a call costs a few stores.
/// Events cost one branch if there is no listener.
class EventSource {
 public:
  /// `observer` may be nullptr. `observer` and `counters` must outlive the EventSource.
  EventSource(Observer* observer, Counters& counters, const Clock& clock, int rank)
      : observer_(observer), counters_(counters), clock_(clock), rank_(rank) {}

  /// This rank has submitted the request for negotiation.
  void ready(const Request& request) {
    if (listening()) tell_ready(request);
  }
  /// `all`: totals since the start of the engine.
  void announced(const Client::Announced& all) { counters_.announced(all.by_slot, all.in_full); }
  /// The engine acts on a verdict.
  void cycle() {
    counters_.cycle();
    if (listening()) tell_cycle();
  }
  /// The request is in the queue of batches.
  void agreed(const Request& request) {
    if (listening()) tell_agreed(request);
  }
  /// `run` has moved the batch, or queued that on a device. `buffers`: of its backend.
  void moved(const Batch& batch, const Run& run, const OwnBuffers& buffers) {
    counters_.batch_moved(run.route(), batch.tensors.size());
    if (batch.operation.device != DeviceKind::host)
      counters_.own_buffers(buffers.on_device, buffers.pinned);
  }
  /// The run of a batch with these requests is about to advance.
  void advancing(std::span<const Request> requests, const Batch& batch, const Run& run) {
    if (listening()) tell_advancing(requests, batch, run);
  }
  /// The request has completed (`succeeded`) or failed. Its Handle is not complete yet.
  void done(const Request& request, bool succeeded);
  /// A stall report was logged.
  void stall_reported() { counters_.stall_reported(); }

 private:
  bool listening() const { return observer_ != nullptr && observer_->listening(); }
  void tell_ready(const Request& request);
  void tell_cycle();
  void tell_agreed(const Request& request);
  void tell_advancing(std::span<const Request> requests, const Batch& batch, const Run& run);
  void tell_done(const Request& request);
  Event event(Event::Type type, const Request& request) const;

  Observer* const observer_;
  Counters& counters_;
  const Clock& clock_;
  const int rank_;
  uint64_t batch_ = 0;                            ///< the batch of the last activity event
  Run::Activity activity_ = Run::Activity::data;  ///< the activity of that event
};

}  // namespace hvd
