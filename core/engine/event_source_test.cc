// What a job tells its observers: the ranks here have no engine, so each call is one of its
// moments.
#include "core/engine/event_source.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hvd {
namespace {

using testing::ElementsAre;

/// Keeps the events as texts.
class Listener final : public Sink {
 public:
  explicit Listener(Observer& observer) : observer_(observer) { observer.add(*this); }
  ~Listener() override { observer_.remove(*this); }

  void take(std::span<const Event> events) override {
    for (const Event& event : events) events_.push_back(event);
  }
  std::vector<Event> events() {
    observer_.remove(*this);
    observer_.add(*this);
    return std::exchange(events_, {});
  }
  std::vector<std::string> texts() {
    std::vector<std::string> texts;
    for (const Event& event : events())
      texts.push_back(fmt::format("{} {} {}", int(event.type), event.name, event.what));
    return texts;
  }

 private:
  Observer& observer_;
  std::vector<Event> events_;
};

struct ActiveRun final : Run {
  Progress advance() override { return Progress::moved; }
  Activity activity() const override { return now; }
  Activity now = Activity::sizes;
};

Request request(OperationKind kind, const std::string& name) {
  Request request;
  request.name = name;
  request.group = 4;
  request.signature.kind = kind;
  request.signature.dtype = DType::int32;
  request.signature.shapes = {{-1, 2}, {3}};
  request.tensors = {{.shape = {5, 2}}, {.shape = {3}}};
  return request;
}

TEST(EventSource, SaysNothingWhileNobodyListens) {
  const ManualClock clock;
  Observer observer;
  EventSource source(&observer, clock, 2);
  EventSource(nullptr, clock, 2).ready(request(OperationKind::allreduce, "unheard"));
  source.ready(request(OperationKind::allreduce, "unheard"));
  Listener listener(observer);
  source.cycle();
  EXPECT_THAT(listener.texts(), ElementsAre("4  "));
}

TEST(EventSource, AnEventHasTheOperationTheRankAndTheTime) {
  ManualClock clock;
  Observer observer;
  EventSource source(&observer, clock, 2);
  Listener listener(observer);
  clock.advance(std::chrono::seconds(3));
  source.ready(request(OperationKind::allgather, "x"));
  source.done(request(OperationKind::allgather, "x"));
  const auto events = listener.events();
  ASSERT_EQ(events.size(), 2);
  EXPECT_EQ(events[0].group, 4);
  EXPECT_EQ(events[0].rank, 2);
  EXPECT_EQ(events[0].time, clock.now());
  EXPECT_EQ(events[1].dtype, DType::int32);
  EXPECT_THAT(events[1].shapes, ElementsAre(Shape{5, 2}, Shape{3}));
}

TEST(EventSource, OperationsAreNamedByKindAndAdasumByItself) {
  const ManualClock clock;
  Observer observer;
  EventSource source(&observer, clock, 0);
  Listener listener(observer);
  std::vector<std::string> words;
  for (int kind = 0; kind <= static_cast<int>(OperationKind::barrier); ++kind)
    source.ready(request(static_cast<OperationKind>(kind), "x"));
  Request adasum = request(OperationKind::allreduce, "x");
  adasum.signature.op = ReduceOp::adasum;
  source.ready(adasum);
  Request join;
  join.kind = Request::Kind::join;
  source.ready(join);
  for (const Event& event : listener.events()) words.emplace_back(event.what);
  EXPECT_THAT(words, ElementsAre("ALLREDUCE", "ALLGATHER", "BROADCAST", "ALLTOALL", "REDUCESCATTER",
                                 "BARRIER", "ADASUM", "JOIN"));
}

TEST(EventSource, WhatMovesByMpiIsCalledSoButAdasum) {
  const ManualClock clock;
  Observer observer;
  EventSource source(&observer, clock, 0, true);
  Listener listener(observer);
  const std::vector<Request> requests(1);
  ActiveRun run;
  run.now = Run::Activity::data;
  Batch batch{.transfer = Transfer::alltoall};
  for (const Transfer transfer : {Transfer::alltoall, Transfer::allreduce}) {
    batch.transfer = transfer;
    ++batch.sequence;
    source.advancing(requests, batch, run);
  }
  batch.op = ReduceOp::adasum;
  ++batch.sequence;
  source.advancing(requests, batch, run);
  EXPECT_THAT(listener.texts(),
              ElementsAre("2  MPI_ALLTOALL", "2  MPI_ALLREDUCE", "2  GLOO_ADASUM_ALLREDUCE"));
}

TEST(EventSource, EachActivityOfABatchIsToldOnceForEachOfItsOperations) {
  const ManualClock clock;
  Observer observer;
  EventSource source(&observer, clock, 0);
  Listener listener(observer);
  std::vector<Request> requests(2);
  requests[0].name = "a";
  requests[1].name = "b";
  ActiveRun run;
  Batch batch{.sequence = 1, .transfer = Transfer::allgather};
  source.advancing(requests, batch, run);
  source.advancing(requests, batch, run);
  EXPECT_THAT(listener.texts(), ElementsAre("2 a WAIT_FOR_DATA", "2 b WAIT_FOR_DATA"));
  run.now = Run::Activity::outputs;
  source.advancing(requests, batch, run);
  run.now = Run::Activity::data;
  source.advancing(requests, batch, run);
  EXPECT_THAT(listener.texts(), ElementsAre("2 a ALLOCATE_OUTPUT", "2 b ALLOCATE_OUTPUT",
                                            "2 a GLOO_ALLGATHER", "2 b GLOO_ALLGATHER"));
  batch.sequence = 2;
  source.advancing(requests, batch, run);
  EXPECT_THAT(listener.texts(), ElementsAre("2 a GLOO_ALLGATHER", "2 b GLOO_ALLGATHER"));
}

TEST(EventSource, MovingIsNamedByTheTransfer) {
  const ManualClock clock;
  Observer observer;
  EventSource source(&observer, clock, 0);
  Listener listener(observer);
  std::vector<Request> requests(1);
  ActiveRun run;
  run.now = Run::Activity::data;
  Batch batch;
  for (int transfer = 0; transfer <= static_cast<int>(Transfer::reducescatter); ++transfer) {
    ++batch.sequence;
    batch.transfer = static_cast<Transfer>(transfer);
    source.advancing(requests, batch, run);
  }
  EXPECT_THAT(listener.texts(),
              ElementsAre("2  GLOO_ALLREDUCE", "2  GLOO_ALLGATHER", "2  GLOO_BCAST",
                          "2  GLOO_ALLTOALL", "2  GLOO_REDUCESCATTER"));
}

}  // namespace
}  // namespace hvd
