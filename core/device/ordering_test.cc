// Streams and events: what the runtime does around a batch of a framework's tensors, and that every
// wait in it is needed. Without one of them, the stand-in driver aborts when work is queued.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/device/testing.h"

namespace hvd::device {
namespace {

using test::Framework;
using test::Gpu;
using test::pointer;

class Ordering : public test::StandIn {};

/// A step that is left out, or done at the wrong time.
enum class Mutation {
  none,
  no_input_event,         ///< our stream does not wait for the producer
  input_event_too_early,  ///< recorded before the producer is queued
  input_event_not_recorded,
  input_event_of_our_stream,
  no_output_event,         ///< the consumer does not wait for our stream
  output_event_too_early,  ///< recorded before the copy is queued
  wait_by_another_stream,
};

/// One tensor of a framework that is sent through a buffer of ours, again and again.
class Rounds {
 public:
  explicit Rounds(Mutation mutation) : mutation_(mutation) {}

  /// Returns how many rounds gave a wrong value.
  int run(int count) {
    for (int round = 0; round < count; ++round) one(round);
    framework_.finish();
    test::await([&] { return ours_.idle(); });
    return wrong_;
  }

 private:
  void one(int value) {
    auto* const in = static_cast<int*>(pointer(input_.address()));
    auto* const out = static_cast<int*>(pointer(output_.address()));
    const bool early = mutation_ == Mutation::input_event_too_early;
    if (early) ready_.record(framework_.stream());
    framework_.queue("producer", {{in, sizeof(int), true}}, [=] { *in = value; });
    if (!early) record_input();
    if (mutation_ != Mutation::no_input_event) ready_.delay(ours_.handle());
    if (mutation_ == Mutation::output_event_too_early) sent_.record(ours_.handle());
    copy_async(test::driver(), output_.address(), input_.address(), sizeof(int), ours_.handle());
    end();
    framework_.queue("consumer", {{out, sizeof(int), false}},
                     [this, out, value] { wrong_ += *out == value ? 0 : 1; });
  }

  void record_input() {
    if (mutation_ == Mutation::input_event_not_recorded) return;
    const bool wrong = mutation_ == Mutation::input_event_of_our_stream;
    ready_.record(wrong ? ours_.handle() : framework_.stream());
  }

  void end() {
    if (mutation_ == Mutation::no_output_event) return;
    if (mutation_ != Mutation::output_event_too_early) sent_.record(ours_.handle());
    sent_.delay(mutation_ == Mutation::wait_by_another_stream ? other_.stream()
                                                              : framework_.stream());
  }

  const Mutation mutation_;
  Gpu gpu_{0};
  Framework framework_{gpu_.context}, other_{gpu_.context};
  DeviceMemory input_{gpu_.context, sizeof(int)}, output_{gpu_.context, sizeof(int)};
  Stream ours_{gpu_.context};
  Event ready_{gpu_.context, EventUse::ordering}, sent_{gpu_.context, EventUse::ordering};
  int wrong_ = 0;  ///< of the framework's stream
};

TEST_F(Ordering, TwoHundredRoundsGiveWhatWasSent) { EXPECT_EQ(Rounds(Mutation::none).run(200), 0); }

TEST_F(Ordering, EveryWaitIsNeeded) {
  const auto without = [](Mutation mutation) { Rounds(mutation).run(2); };
  const char* const producer = "cuMemcpyAsync on stream .* reads memory that producer on stream";
  EXPECT_DEATH(without(Mutation::no_input_event), producer);
  EXPECT_DEATH(without(Mutation::input_event_too_early), producer);
  EXPECT_DEATH(without(Mutation::input_event_not_recorded), producer);
  EXPECT_DEATH(without(Mutation::input_event_of_our_stream), producer);
  const char* const consumer = "consumer on stream .* reads memory that cuMemcpyAsync on stream";
  EXPECT_DEATH(without(Mutation::no_output_event), consumer);
  EXPECT_DEATH(without(Mutation::output_event_too_early), consumer);
  EXPECT_DEATH(without(Mutation::wait_by_another_stream), consumer);
}

TEST_F(Ordering, ARecordReplacesTheFormerOneButNotForAStreamThatWaits) {
  const Gpu gpu(0);
  const Framework framework(gpu.context);
  const Stream ours(gpu.context);
  Event event(gpu.context, EventUse::ordering);
  EXPECT_TRUE(event.done()) << "an event that was never recorded";
  std::atomic<bool> open{false};
  framework.queue("first", {}, [&] { test::await([&] { return open.load(); }); });
  event.record(framework.stream());
  EXPECT_FALSE(event.done());
  event.delay(ours.handle());
  const Stream idle(gpu.context);
  event.record(idle.handle());
  test::await([&] { return event.done(); });
  EXPECT_FALSE(ours.idle()) << "it waits for the first recording";
  open.store(true);
  test::await([&] { return ours.idle(); });
  framework.finish();
}

TEST_F(Ordering, TheHostSeesWhatAnEventThatIsDoneComesAfter) {
  const Gpu gpu(0);
  const Framework framework(gpu.context);
  const Stream ours(gpu.context);
  const DeviceMemory memory(gpu.context, 64);
  Event event(gpu.context, EventUse::ordering);
  framework.queue("producer", {{pointer(memory.address()), 64, true}}, [] {});
  event.record(framework.stream());
  test::await([&] { return event.done(); });
  fill_async(test::driver(), memory.address(), 0, 64, ours.handle());  // without an event
  test::await([&] { return ours.idle(); });
}

TEST_F(Ordering, EventsForTimingTellTheTimeBetweenThem) {
  const Gpu gpu(0);
  const Stream ours(gpu.context);
  Event begin(gpu.context, EventUse::timing), end(gpu.context, EventUse::timing);
  begin.record(ours.handle());
  end.record(ours.handle());
  test::await([&] { return end.done(); });
  EXPECT_GE(end.elapsed_since(begin).count(), 0);
  const Event ordering(gpu.context, EventUse::ordering);
  EXPECT_THAT(test::error_of([&] { end.elapsed_since(ordering); }),
              ::testing::HasSubstr("cuEventElapsedTime: CUDA_ERROR_INVALID_HANDLE (400)"));
}

TEST_F(Ordering, AnObjectOfAnotherGpuIsMisuse) {
  EXPECT_DEATH(
      {
        const Gpu first(0);
        const Gpu second(1);
        const Stream ours(first.context);
        ours.idle();
      },
      "cuStreamQuery: wrong context: that of GPU 1 is current, but the stream is of GPU 0");
  EXPECT_DEATH(
      {
        const Gpu first(1);
        const Gpu second(0);
        const Stream other(first.context);
        Event event(second.context, EventUse::ordering);
        event.record(other.handle());
      },
      "cuEventRecord: wrong stream: it is of GPU 1, the event of GPU 0");
}

TEST_F(Ordering, ACallWithoutAContextIsMisuse) {
  EXPECT_DEATH(
      {
        const PrimaryContext context(test::driver(), 0);
        const Stream ours(context);
        ours.idle();
      },
      "cuStreamQuery: no context is current on this thread");
}

TEST_F(Ordering, MemoryIsNotFreedBeforeTheHostKnowsThatItIsUnused) {
  const auto free_early = [](bool waits) {
    const Gpu gpu(0);
    const Stream ours(gpu.context);
    auto memory = std::make_unique<DeviceMemory>(gpu.context, 64);
    fill_async(test::driver(), memory->address(), 1, 64, ours.handle());
    if (waits) test::await([&] { return ours.idle(); });
    memory.reset();
  };
  free_early(true);
  EXPECT_DEATH(free_early(false), "cuMemFree_v2: freed in flight: .* cuMemsetD8Async on stream");
}

TEST_F(Ordering, FreedAndPageableMemoryAreMisuse) {
  const Gpu gpu(0);
  const Stream ours(gpu.context);
  EXPECT_DEATH(
      {
        auto memory = std::make_unique<DeviceMemory>(gpu.context, 64);
        const DevicePointer address = memory->address();
        memory.reset();
        fill_async(test::driver(), address, 1, 64, ours.handle());
      },
      "cuMemsetD8Async writes 64 bytes that are neither device memory nor pinned");
  const std::vector<char> pageable(64);
  const DeviceMemory memory(gpu.context, 64);
  EXPECT_DEATH(copy_async(test::driver(), memory.address(),
                          reinterpret_cast<DevicePointer>(pageable.data()), 64, ours.handle()),
               "cuMemcpyAsync reads 64 bytes that are neither device memory nor pinned");
}

using BeginCapture = Result(StreamHandle, CaptureMode);
using EndCapture = Result(StreamHandle, void**);

TEST_F(Ordering, ACaptureOfTheFrameworkIsSeenAndNotDisturbed) {
  const Gpu gpu(0);
  const Framework framework(gpu.context);
  const Stream ours(gpu.context);
  const auto begin = test::stand_in<BeginCapture>("cuStreamBeginCapture_v2");
  const auto end = test::stand_in<EndCapture>("cuStreamEndCapture");
  ASSERT_EQ(begin(framework.stream(), CaptureMode::global), kSuccess);
  EXPECT_TRUE(is_capturing(test::driver(), framework.stream()));
  EXPECT_FALSE(is_capturing(test::driver(), ours.handle()));
  EXPECT_DEATH(ours.idle(), "cuStreamQuery: it invalidates the capture of another thread");
  {
    const RelaxedCapture relaxed(test::driver());
    EXPECT_TRUE(ours.idle());
  }
  EXPECT_DEATH(ours.idle(), "it invalidates the capture") << "the former mode is back";
  void* graph = nullptr;
  ASSERT_EQ(end(framework.stream(), &graph), kSuccess);
  EXPECT_TRUE(ours.idle());
}

TEST_F(Ordering, AStreamThatHangsHoldsUpNoOther) {
  const Gpu gpu(0);
  const test::Variable stuck("FAKE_CUDA_STUCK", "1");
  const Stream hangs(gpu.context);
  ::unsetenv("FAKE_CUDA_STUCK");
  const Stream works(gpu.context);
  Event of_both(gpu.context, EventUse::ordering);
  EXPECT_TRUE(hangs.idle()) << "nothing is queued";
  of_both.record(hangs.handle());
  EXPECT_FALSE(of_both.done());
  Event of_one(gpu.context, EventUse::ordering);
  of_one.record(works.handle());
  test::await([&] { return of_one.done(); });
  EXPECT_FALSE(hangs.idle());
}

TEST_F(Ordering, OnlyTheContextsOfGpusInUseAreRetained) {
  const auto retained =
      test::stand_in<decltype(fake_cuda_retained_contexts)>("fake_cuda_retained_contexts");
  test::driver();
  EXPECT_EQ(retained(), 0);
  {
    const Gpu gpu(1);
    EXPECT_EQ(retained(), 1);
  }
  EXPECT_EQ(retained(), 0);
}

}  // namespace
}  // namespace hvd::device
