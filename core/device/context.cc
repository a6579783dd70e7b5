#include "core/device/context.h"

#include "core/base/error.h"
#include "core/device/messages.h"

namespace hvd::device {

PrimaryContext::PrimaryContext(const Driver& driver, int index) : driver_(driver), index_(index) {
  driver.require_same_process();
  if (index < 0 || index >= driver.gpu_count())
    fail(Code::invalid_argument, no_such_gpu_text(index, driver.gpu_count()));
  driver.check(call().device_get(&device_, index), "cuDeviceGet");
  driver.check(call().primary_context_retain(&handle_, device_), "cuDevicePrimaryCtxRetain");
}

// Errors are ignored: at exit the driver may have shut down before.
PrimaryContext::~PrimaryContext() { call().primary_context_release(device_); }

ContextScope::ContextScope(const PrimaryContext& context) : context_(context) {
  context.driver().check(context.call().context_push(context.handle()), "cuCtxPushCurrent");
}

ContextScope::~ContextScope() {
  ContextHandle popped = nullptr;
  context_.call().context_pop(&popped);
}

RelaxedCapture::RelaxedCapture(const Driver& driver) : driver_(driver) {
  driver.check(driver.call().exchange_capture_mode(&former_), "cuThreadExchangeStreamCaptureMode");
}

RelaxedCapture::~RelaxedCapture() { driver_.call().exchange_capture_mode(&former_); }

bool is_capturing(const Driver& driver, StreamHandle stream) {
  CaptureStatus status = CaptureStatus::none;
  driver.check(driver.call().stream_is_capturing(stream, &status), "cuStreamIsCapturing");
  return status != CaptureStatus::none;
}

}  // namespace hvd::device
