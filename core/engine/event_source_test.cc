// The events of a job for its observers. There is no engine; the tests make its calls.
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
      texts.push_back(fmt::format("{} {} {}", int(event.type), event.name, int(event.activity)));
    return texts;
  }

 private:
  Observer& observer_;
  std::vector<Event> events_;
};

struct ActiveRun final : Run {
  Progress advance() override { return Progress::moved; }
  Activity activity() const override { return now; }
  Route route() const override { return by; }
  Activity now = Activity::sizes;
  Route by{};
};

/// An EventSource, and the objects that it reports to.
struct Told {
  explicit Told(int rank = 0) : source(&observer, counters, clock, rank) {}
  ManualClock clock;
  Observer observer;
  Counters counters;
  EventSource source;
};

Request request(OperationKind kind, const std::string& name) {
  Request request;
  request.name = name;
  request.group = 4;
  request.signature.operation.kind = kind;
  request.signature.operation.dtype = DType::int32;
  request.signature.shapes = {{-1, 2}, {3}};
  request.tensors = {{.shape = {5, 2}}, {.shape = {3}}};
  return request;
}

TEST(EventSource, SaysNothingWhileNobodyListens) {
  Told told;
  EventSource(nullptr, told.counters, told.clock, 2)
      .ready(request(OperationKind::allreduce, "unheard"));
  told.source.ready(request(OperationKind::allreduce, "unheard"));
  Listener listener(told.observer);
  told.source.cycle();
  EXPECT_THAT(listener.texts(), ElementsAre("4  0"));
}

TEST(EventSource, AnEventHasTheOperationItsBytesTheRankAndTheTime) {
  Told told(2);
  Listener listener(told.observer);
  told.clock.advance(std::chrono::seconds(3));
  told.source.ready(request(OperationKind::allgather, "x"));
  told.source.done(request(OperationKind::allgather, "x"), true);
  const auto events = listener.events();
  ASSERT_EQ(events.size(), 2);
  EXPECT_EQ(events[0].group, 4);
  EXPECT_EQ(events[0].rank, 2);
  EXPECT_EQ(events[0].time, told.clock.now());
  EXPECT_EQ(events[0].bytes, (5 * 2 + 3) * sizeof(int32_t));
  EXPECT_EQ(events[1].operation,
            (Operation{.kind = OperationKind::allgather, .dtype = DType::int32}));
  EXPECT_THAT(events[1].shapes, ElementsAre(Shape{5, 2}, Shape{3}));
}

TEST(EventSource, WhatIsAgreedStandsInTheQueue) {
  Told told;
  Listener listener(told.observer);
  told.source.agreed(request(OperationKind::allreduce, "x"));
  const auto events = listener.events();
  ASSERT_EQ(events.size(), 2);
  EXPECT_EQ(events[0].type, Event::Type::agreed);
  EXPECT_EQ(events[1].type, Event::Type::activity);
  EXPECT_EQ(events[1].activity, Event::Activity::queued);
}

TEST(EventSource, EachActivityOfABatchIsToldOnceForEachOfItsOperations) {
  Told told;
  Listener listener(told.observer);
  std::vector<Request> requests(2);
  requests[0].name = "a";
  requests[1].name = "b";
  ActiveRun run;
  Batch batch{.sequence = 1, .operation = {.kind = OperationKind::allgather}};
  run.now = Run::Activity::meeting;
  told.source.advancing(requests, batch, run);
  told.source.advancing(requests, batch, run);
  EXPECT_THAT(listener.texts(), ElementsAre("2 a 1", "2 b 1"));
  run.now = Run::Activity::sizes;
  told.source.advancing(requests, batch, run);
  EXPECT_THAT(listener.texts(), ElementsAre("2 a 2", "2 b 2"));
  run.now = Run::Activity::outputs;
  told.source.advancing(requests, batch, run);
  run.now = Run::Activity::data;
  told.source.advancing(requests, batch, run);
  EXPECT_THAT(listener.texts(), ElementsAre("2 a 3", "2 b 3", "2 a 4", "2 b 4"));
  batch.sequence = 2;
  told.source.advancing(requests, batch, run);
  EXPECT_THAT(listener.texts(), ElementsAre("2 a 4", "2 b 4"));
}

TEST(EventSource, AnActivityHasTheBatchAndTheRoute) {
  Told told;
  Listener listener(told.observer);
  const std::vector<Request> requests(1);
  ActiveRun run;
  run.by = {.way = Way::phased_links, .algorithm = Algorithm::ring};
  told.source.advancing(requests, {.sequence = 9}, run);
  const auto events = listener.events();
  ASSERT_EQ(events.size(), 1);
  EXPECT_EQ(events[0].batch, 9);
  EXPECT_EQ(events[0].route, run.by);
}

TEST(EventSource, CountsAlthoughNobodyListens) {
  Told told;
  ActiveRun run;
  run.by.way = Way::one_shot;
  told.source.cycle();
  told.source.announced({.by_slot = 5, .in_full = 2});
  told.source.moved({.tensors = std::vector<BatchTensor>(3)}, run, {.pinned = 9});
  run.by.mover = Mover::mpi;
  Batch on_device{.tensors = std::vector<BatchTensor>(4)};
  on_device.operation.device = DeviceKind::cuda;
  told.source.moved(on_device, run, {.on_device = 64, .pinned = 32});
  told.source.done(request(OperationKind::allgather, "x"), true);
  told.source.done(request(OperationKind::allgather, "x"), false);
  told.source.stall_reported();
  const CounterValues counted = told.counters.snapshot();
  EXPECT_EQ(counted.cycles, 1);
  EXPECT_EQ(counted.by_slot, 5);
  EXPECT_EQ(counted.in_full, 2);
  EXPECT_EQ(counted.batches[static_cast<size_t>(Way::one_shot)], 1);
  EXPECT_EQ(counted.batches_by[static_cast<size_t>(Mover::mpi)], 1);
  EXPECT_EQ(counted.tensors, 7);
  EXPECT_EQ(counted.operations[static_cast<size_t>(OperationKind::allgather)], 1);
  EXPECT_EQ(counted.bytes[static_cast<size_t>(OperationKind::allgather)], 52);
  EXPECT_EQ(counted.failed, 1);
  EXPECT_EQ(counted.stalls, 1);
  EXPECT_EQ(counted.device_bytes, 64);
  EXPECT_EQ(counted.pinned_bytes, 32);
}

}  // namespace
}  // namespace hvd
