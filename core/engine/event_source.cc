#include "core/engine/event_source.h"

#include <utility>

#include "core/base/assert.h"

namespace hvd {
namespace {

Event::Activity activity_of(const Run& run) {
  switch (run.activity()) {
    case Run::Activity::meeting:
      return Event::Activity::meeting;
    case Run::Activity::sizes:
      return Event::Activity::sizes;
    case Run::Activity::outputs:
      return Event::Activity::outputs;
    case Run::Activity::data:
      return Event::Activity::data;
  }
  HVD_ASSERT(false);
}

uint64_t bytes_of(const Request& request) {
  uint64_t elements = 0;
  for (const BatchTensor& tensor : request.tensors)
    elements += static_cast<uint64_t>(element_count(tensor.shape));
  return elements * element_bytes(request.signature.operation.dtype);
}

}  // namespace

Event EventSource::event(Event::Type type, const Request& request) const {
  return {.type = type,
          .time = clock_.now(),
          .group = request.group,
          .name = request.name,
          .operation = request.signature.operation,
          .bytes = bytes_of(request),
          .rank = rank_};
}

void EventSource::tell_ready(const Request& request) {
  observer_->record(event(Event::Type::ready, request));
}

void EventSource::tell_cycle() {
  observer_->record({.type = Event::Type::cycle, .time = clock_.now()});
}

void EventSource::tell_agreed(const Request& request) {
  Event agreed = event(Event::Type::agreed, request);
  Event queued = agreed;
  queued.type = Event::Type::activity;
  queued.activity = Event::Activity::queued;
  observer_->record(std::move(agreed));
  observer_->record(std::move(queued));
}

void EventSource::tell_advancing(std::span<const Request> requests, const Batch& batch,
                                 const Run& run) {
  const Run::Activity activity = run.activity();
  if (batch.sequence == batch_ && activity == activity_) return;
  batch_ = batch.sequence;
  activity_ = activity;
  for (const Request& request : requests) {
    Event begun = event(Event::Type::activity, request);
    begun.activity = activity_of(run);
    begun.route = run.route();
    begun.batch = batch.sequence;
    observer_->record(std::move(begun));
  }
}

void EventSource::done(const Request& request, bool succeeded) {
  if (succeeded)
    counters_.operation_done(request.signature.operation.kind, bytes_of(request));
  else
    counters_.operation_failed();
  if (listening()) tell_done(request);
}

void EventSource::tell_done(const Request& request) {
  Event done = event(Event::Type::done, request);
  for (const BatchTensor& tensor : request.tensors) done.shapes.push_back(tensor.shape);
  observer_->record(std::move(done));
}

}  // namespace hvd
