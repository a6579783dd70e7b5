// How events come from who records them to who listens.
#include "core/observe/observer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <thread>

#include "core/observe/event_ring.h"

namespace hvd {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Event numbered(uint64_t number) { return {.type = Event::Type::cycle, .count = number}; }

/// Keeps the numbers of the events it has got.
class Collector final : public Sink {
 public:
  void take(std::span<const Event> events) override {
    const std::lock_guard lock(mutex_);
    for (const Event& event : events) numbers_.push_back(event.count);
    changed_.notify_all();
  }
  void wait_for(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return numbers_.size() >= count; });
  }
  std::vector<uint64_t> numbers() {
    const std::lock_guard lock(mutex_);
    return numbers_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<uint64_t> numbers_;
};

TEST(Observer, HandsOverEventsInOrderWithoutBeingAsked) {
  Observer observer;
  Collector sink;
  observer.add(sink);
  for (uint64_t i = 0; i < 3; ++i) observer.record(numbered(i));
  sink.wait_for(3);
  observer.record(numbered(3));  // after it has slept again
  sink.wait_for(4);
  EXPECT_THAT(sink.numbers(), ElementsAre(0, 1, 2, 3));
  observer.remove(sink);
}

TEST(Observer, ListensOnlyWhileThereIsASink) {
  Observer observer;
  Collector one, two;
  EXPECT_FALSE(observer.listening());
  observer.add(one);
  observer.add(two);
  observer.remove(one);
  EXPECT_TRUE(observer.listening());
  observer.remove(two);
  EXPECT_FALSE(observer.listening());
}

TEST(Observer, ASinkThatIsRemovedHasEverythingFromItsTimeAndNothingElse) {
  Observer observer;
  Collector first, second, whole;
  observer.add(whole);
  observer.add(first);
  observer.record(numbered(1));
  observer.remove(first);
  observer.record(numbered(2));
  observer.add(second);
  observer.record(numbered(3));
  observer.remove(second);
  observer.record(numbered(4));
  observer.remove(whole);
  EXPECT_THAT(first.numbers(), ElementsAre(1));
  EXPECT_THAT(second.numbers(), ElementsAre(3));
  EXPECT_THAT(whole.numbers(), ElementsAre(1, 2, 3, 4));
}

TEST(Observer, AnEventThatCameTooLateForOneSinkDoesNotReachTheNext) {
  Observer observer;
  Collector first, second;
  observer.add(first);
  observer.remove(first);
  observer.record(numbered(1));
  observer.add(second);
  observer.remove(second);
  EXPECT_THAT(second.numbers(), IsEmpty());
}

TEST(Observer, SinksMayComeAndGoWhileEventsAreRecorded) {
  Observer observer;
  Collector whole;
  observer.add(whole);
  std::thread driver([&] {
    for (uint64_t i = 0; i < 1000; ++i) observer.record(numbered(i));
  });
  for (int i = 0; i < 100; ++i) {
    Collector passing;
    observer.add(passing);
    observer.remove(passing);
    const std::vector<uint64_t> got = passing.numbers();
    for (size_t at = 1; at < got.size(); ++at) EXPECT_EQ(got[at], got[at - 1] + 1);
  }
  driver.join();
  observer.remove(whole);
  EXPECT_EQ(whole.numbers().size(), 1000);
}

TEST(EventRing, WhatDoesNotFitIsDroppedAndCounted) {
  EventRing ring;
  ring.open();
  for (uint64_t i = 0; i < EventRing::kCapacity + 5; ++i) ring.push(numbered(i));
  std::vector<Event> out;
  ring.take(out);
  ASSERT_EQ(out.size(), EventRing::kCapacity + 1);
  EXPECT_EQ(out[EventRing::kCapacity - 1].count, EventRing::kCapacity - 1);
  EXPECT_EQ(out.back().type, Event::Type::lost);
  EXPECT_EQ(out.back().count, 5);

  out.clear();
  ring.push(numbered(7));
  ring.take(out);
  ASSERT_EQ(out.size(), 1);
  EXPECT_EQ(out[0].count, 7);
}

TEST(EventRing, TakesNoMemoryBeforeItIsOpened) {
  EventRing ring;
  ring.push(numbered(1));
  std::vector<Event> out;
  ring.take(out);
  ASSERT_EQ(out.size(), 1);
  EXPECT_EQ(out[0].type, Event::Type::lost);
}

TEST(EventRing, ClosingEndsWaiting) {
  EventRing ring;
  std::thread waiting([&] { EXPECT_FALSE(ring.wait(std::chrono::hours(1))); });
  ring.close();
  waiting.join();
}

}  // namespace
}  // namespace hvd
