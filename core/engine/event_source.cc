#include "core/engine/event_source.h"

#include <utility>

#include "core/base/assert.h"

namespace hvd {
namespace {

std::string_view word_for(const Request& request) {
  if (request.kind == Request::Kind::join) return "JOIN";
  const Signature& signature = request.signature;
  switch (signature.kind) {
    case OperationKind::allreduce:
      return signature.op == ReduceOp::adasum ? "ADASUM" : "ALLREDUCE";
    case OperationKind::allgather:
      return "ALLGATHER";
    case OperationKind::broadcast:
      return "BROADCAST";
    case OperationKind::alltoall:
      return "ALLTOALL";
    case OperationKind::reducescatter:
      return "REDUCESCATTER";
    case OperationKind::barrier:
      return "BARRIER";
    case OperationKind::add_process_set:
      return "ADD_PROCESS_SET";
    case OperationKind::remove_process_set:
      return "REMOVE_PROCESS_SET";
  }
  HVD_ASSERT(false);
}

// Readers of traces know the host data plane by the prefix GLOO. Adasum never goes by MPI.
std::string_view word_for_moving(const Batch& batch, bool by_mpi) {
  switch (batch.transfer) {
    case Transfer::allreduce:
      if (batch.op == ReduceOp::adasum) return "GLOO_ADASUM_ALLREDUCE";
      return by_mpi ? "MPI_ALLREDUCE" : "GLOO_ALLREDUCE";
    case Transfer::allgather:
      return by_mpi ? "MPI_ALLGATHER" : "GLOO_ALLGATHER";
    case Transfer::broadcast:
      return by_mpi ? "MPI_BCAST" : "GLOO_BCAST";
    case Transfer::alltoall:
      return by_mpi ? "MPI_ALLTOALL" : "GLOO_ALLTOALL";
    case Transfer::reducescatter:
      return by_mpi ? "MPI_REDUCESCATTER" : "GLOO_REDUCESCATTER";
  }
  HVD_ASSERT(false);
}

std::string_view word_for(Run::Activity activity, const Batch& batch, bool by_mpi) {
  switch (activity) {
    case Run::Activity::sizes:
      return "WAIT_FOR_DATA";
    case Run::Activity::outputs:
      return "ALLOCATE_OUTPUT";
    case Run::Activity::data:
      return word_for_moving(batch, by_mpi);
  }
  HVD_ASSERT(false);
}

}  // namespace

Event EventSource::event(Event::Type type, const Request& request) const {
  return {.type = type,
          .time = clock_.now(),
          .group = request.group,
          .name = request.name,
          .rank = rank_};
}

void EventSource::tell_ready(const Request& request) {
  Event ready = event(Event::Type::ready, request);
  ready.what = request.kind == Request::Kind::join ? "JOIN" : word_for(request);
  observer_->record(std::move(ready));
}

void EventSource::tell_cycle() {
  observer_->record({.type = Event::Type::cycle, .time = clock_.now()});
}

void EventSource::tell_agreed(const Request& request) {
  Event agreed = event(Event::Type::agreed, request);
  agreed.what = word_for(request);
  Event queued = agreed;
  queued.type = Event::Type::activity;
  queued.what = "QUEUE";
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
    begun.what = word_for(activity, batch, by_mpi_);
    observer_->record(std::move(begun));
  }
}

void EventSource::tell_done(const Request& request) {
  Event done = event(Event::Type::done, request);
  done.dtype = request.signature.dtype;
  for (const BatchTensor& tensor : request.tensors) done.shapes.push_back(tensor.shape);
  observer_->record(std::move(done));
}

}  // namespace hvd
