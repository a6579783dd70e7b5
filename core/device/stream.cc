#include "core/device/stream.h"

namespace hvd::device {
namespace {

unsigned flags_of(EventUse use) {
  switch (use) {
    case EventUse::timing:
      return 0;
    case EventUse::other_processes:
      return kEventDisablesTiming | kEventForOtherProcesses;
    case EventUse::ordering:
      break;
  }
  return kEventDisablesTiming;
}

/// True if a query says so; false: not yet.
bool is_done(const Driver& driver, Result result, const char* doing) {
  if (result == kNotReady) return false;
  driver.check(result, doing);
  return true;
}

}  // namespace

Stream::Stream(const PrimaryContext& context) : context_(context) {
  const ContextScope scope(context);
  int least = 0, greatest = 0;
  const Driver& driver = context.driver();
  driver.check(context.call().stream_priority_range(&least, &greatest),
               "cuCtxGetStreamPriorityRange");
  driver.check(context.call().stream_create(&handle_, kNonBlockingStream, greatest),
               "cuStreamCreateWithPriority");
}

Stream::~Stream() { context_.call().stream_destroy(handle_); }

bool Stream::idle() const {
  return is_done(context_.driver(), context_.call().stream_query(handle_), "cuStreamQuery");
}

Event::Event(const PrimaryContext& context, EventUse use) : context_(context) {
  const ContextScope scope(context);
  context.driver().check(context.call().event_create(&handle_, flags_of(use)), "cuEventCreate");
}

Event::Event(const PrimaryContext& context, const IpcHandle& of_other_process) : context_(context) {
  const ContextScope scope(context);
  context.driver().check(context.call().ipc_open_event_handle(&handle_, of_other_process),
                         "cuIpcOpenEventHandle");
}

Event::~Event() { context_.call().event_destroy(handle_); }

void Event::record(StreamHandle stream) {
  context_.driver().check(context_.call().event_record(handle_, stream), "cuEventRecord");
}

void Event::delay(StreamHandle stream) const {
  context_.driver().check(context_.call().stream_wait_event(stream, handle_, 0),
                          "cuStreamWaitEvent");
}

bool Event::done() const {
  return is_done(context_.driver(), context_.call().event_query(handle_), "cuEventQuery");
}

std::chrono::nanoseconds Event::elapsed_since(const Event& begin) const {
  float milliseconds = 0;
  context_.driver().check(context_.call().event_elapsed_time(&milliseconds, begin.handle_, handle_),
                          "cuEventElapsedTime");
  return std::chrono::nanoseconds(static_cast<int64_t>(milliseconds * 1e6));
}

IpcHandle Event::share() const {
  IpcHandle handle{};
  context_.driver().check(context_.call().ipc_get_event_handle(&handle, handle_),
                          "cuIpcGetEventHandle");
  return handle;
}

}  // namespace hvd::device
