// The primary context of a GPU, which frameworks use as well, and the guards around a turn of the
// progress engine. A context takes some hundred MB of the GPU, so the runtime retains only those of
// GPUs that have brought a tensor.
#pragma once

#include "core/device/driver.h"

namespace hvd::device {

/// Retains the primary context of one GPU. Any thread may use it. Must outlive the objects that are
/// made in it.
class PrimaryContext {
 public:
  /// `index`: the number of the GPU in this process. Throws Error{invalid_argument} if there is no
  /// such GPU, or in a forked child; Error{internal}.
  PrimaryContext(const Driver& driver, int index);
  ~PrimaryContext();
  PrimaryContext(const PrimaryContext&) = delete;
  PrimaryContext& operator=(const PrimaryContext&) = delete;

  const Driver& driver() const { return driver_; }
  const DriverTable& call() const { return driver_.call(); }
  ContextHandle handle() const { return handle_; }
  Ordinal device() const { return device_; }
  int index() const { return index_; }

 private:
  const Driver& driver_;
  const int index_;
  Ordinal device_ = 0;
  ContextHandle handle_ = nullptr;
};

/// Makes a context current on this thread, and the former one again at its end. The progress engine
/// runs on threads of the user, whose current context must not change.
class ContextScope {
 public:
  explicit ContextScope(const PrimaryContext& context);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  const PrimaryContext& context_;
};

/// While it exists, calls of this thread do not disturb a capture that another thread has begun in
/// the mode `global`, the default of PyTorch: queries and allocations would invalidate it.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const Driver& driver);
  ~RelaxedCapture();
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const Driver& driver_;
  CaptureMode former_ = CaptureMode::relaxed;
};

/// Whether work queued on `stream` is being captured into a graph. The context must be current.
bool is_capturing(const Driver& driver, StreamHandle stream);

}  // namespace hvd::device
