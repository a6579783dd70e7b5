// Streams and events. Work on one stream runs in order. Work on different streams, and host code,
// is ordered only by events.
//
// Objects are made and destroyed on any thread. All other calls need the context to be current on
// the calling thread (ContextScope). Errors of the driver are Error{internal}; after a failure on
// the GPU itself, every later call fails with it.
#pragma once

#include <chrono>

#include "core/device/context.h"

namespace hvd::device {

/// A stream of the runtime, with the highest priority, that does not synchronize with the default
/// stream.
class Stream {
 public:
  explicit Stream(const PrimaryContext& context);
  /// Does not wait: queued work still runs.
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  StreamHandle handle() const { return handle_; }
  /// Whether all queued work is done. Does not block.
  bool idle() const;

 private:
  const PrimaryContext& context_;
  StreamHandle handle_ = nullptr;
};

enum class EventUse : unsigned char {
  ordering,         ///< the cheapest
  timing,           ///< for elapsed_since()
  other_processes,  ///< can be shared with processes of this host
};

/// A point in the work of a stream. An event that was never recorded is done, and orders nothing.
class Event {
 public:
  Event(const PrimaryContext& context, EventUse use);
  /// Opens the event of another process.
  Event(const PrimaryContext& context, const IpcHandle& of_other_process);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  /// Sets the point: after all work that was queued on `stream` before. Replaces the former point,
  /// but not for streams that wait for it already. A handle such as kPerThreadStream means a stream
  /// of the calling thread.
  void record(StreamHandle stream);
  /// Work that is queued on `stream` later waits for the point on the device, not on the host.
  void delay(StreamHandle stream) const;
  /// Whether the point has been reached. Does not block. If so, the host sees what was written
  /// before it.
  bool done() const;
  /// The time between the points of two events for timing, which must be done.
  std::chrono::nanoseconds elapsed_since(const Event& begin) const;
  IpcHandle share() const;

 private:
  const PrimaryContext& context_;
  EventHandle handle_ = nullptr;
};

}  // namespace hvd::device
