// Every wait of the code for GPUs is needed: one is left out, and the stand-in aborts, or a value
// is wrong. The list of all mutations is in tests/fake_cuda/README.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "core/capi/gpu_testing.h"

namespace hvd {
namespace {

using device::DeviceMemory;
using device::test::await;
using test::ClosedStream;
using test::gpu_job;
using test::GpuJobOptions;
using test::GpuRank;
using test::GpuRequest;
using test::Mutation;

class GpuMutations : public device::test::StandIn {};

/// Memory that the framework has used on its stream before it gives it away.
struct UsedOutput {
  static const char* allocate(void* owner, int32_t, const int64_t*, int32_t, hvd_tensor* output) {
    auto& self = *static_cast<UsedOutput*>(owner);
    const device::ContextScope current(self.rank.context());
    self.memory = std::make_unique<DeviceMemory>(self.rank.context(), 64);
    output->data = device::test::pointer(self.memory->address());
    self.rank.framework().queue("before", {{output->data, 64, true}}, [] {});
    output->stream = self.rank.framework().stream();
    return nullptr;
  }
  GpuRank& rank;
  std::unique_ptr<DeviceMemory> memory{};
};

/// An allgather of one rank whose input is ready.
void gather(GpuOperationsChoice choice, const std::string& fails) {
  const Mutation mutation;
  gpu_job(1, test::with(choice), [&](GpuRank& rank) {
    auto x = rank.tensor<float>({1});
    rank.framework().finish();
    mutation.begin(fails);
    UsedOutput output{rank};
    GpuRequest request(HVD_ALLGATHER, "x");
    request.add(rank, x.data(), x.data(), HVD_FLOAT32, {1});
    request.request.allocate = &UsedOutput::allocate;
    request.request.owner = &output;
    request.request.outputs = nullptr;
    const auto done = rank.submit(request.request);
    EXPECT_EQ(rank.finish(done), "");
    rank.framework().finish();
    await([&] { return done->result->reached(); });
  });
}

TEST_F(GpuMutations, AnAllocatedOutputIsWrittenBehindWhatUsedItsMemory) {
  for (const auto choice : {GpuOperationsChoice::nccl, GpuOperationsChoice::host}) {
    gather(choice, "");
    EXPECT_DEATH(gather(choice, "cuStreamWaitEvent=0"), "memory that before on stream");
    EXPECT_DEATH(gather(choice, "cuEventRecord=0"), "memory that before on stream");
  }
}

/// Memory that is freed by any thread.
struct Freed {
  void free() {
    memory.reset();
    is_free.store(true);
  }
  std::unique_ptr<DeviceMemory> memory;
  std::atomic<bool> is_free{false};
};

/// A framework that frees its tensor as soon as the runtime gives it back.
void free_after_use(const std::string& fails) {
  const Mutation mutation;
  gpu_job(1, test::with(GpuOperationsChoice::nccl), [&](GpuRank& rank) {
    std::atomic<bool> open{false};
    Freed lent{std::make_unique<DeviceMemory>(rank.context(), 64)};
    auto* const data = static_cast<float*>(device::test::pointer(lent.memory->address()));
    rank.framework().queue("gate", {}, [&] { await([&] { return open.load(); }); });
    mutation.begin(fails);
    GpuRequest request(HVD_ALLREDUCE, "x");
    request.add(rank, data, data, HVD_FLOAT32, {16});
    request.request.owner = &lent;
    request.request.release = [](void* owner) { static_cast<Freed*>(owner)->free(); };
    const auto done = rank.submit(request.request);
    EXPECT_EQ(rank.finish(done), "");
    if (!fails.empty()) await([] { return false; });  // ends by the abort
    open.store(true);
    rank.framework().finish();
    await([&] { return done->result->reached() && lent.is_free.load(); });
  });
}

TEST_F(GpuMutations, ALoanEndsWhenTheGpuIsDone) {
  free_after_use("");
  EXPECT_DEATH(free_after_use("cuEventQuery=0"), "cuMemFree_v2: freed in flight: .*ncclAllReduce");
}

/// A sum through host memory of a tensor that the framework computes late. Aborts if it is wrong.
void sum_of_late_inputs(const std::string& fails) {
  const Mutation mutation;
  std::atomic<int> right{0};
  gpu_job(2, test::with(GpuOperationsChoice::host), [&](GpuRank& rank) {
    std::atomic<bool> open{fails.empty()};
    auto x = rank.tensor<float>({5});
    rank.framework().queue("gate", {}, [&] { await([&] { return open.load(); }); });
    x.store({1});
    if (rank.rank() == 0) mutation.begin(fails);
    GpuRequest request(HVD_ALLREDUCE, "x");
    request.add(rank, x.data(), x.data(), HVD_FLOAT32, {1});
    const auto done = rank.submit(request.request);
    EXPECT_EQ(rank.finish(done), "");
    open.store(true);
    right += x.read().front() == 2 ? 1 : 0;
  });
  if (right == 2) return;
  std::fprintf(stderr, "wrong sum\n");
  std::abort();
}

TEST_F(GpuMutations, TheHostReadsWhatTheDownloadHasWritten) {
  sum_of_late_inputs("");
  // It is taken for done before it has begun: also by readers of the result, so either is found.
  EXPECT_DEATH(sum_of_late_inputs("cuEventQuery=0"), "wrong sum|reads memory that cuMemcpyAsync");
}

/// A sum where the host waits for the GPU, which has other work before. Aborts if the result is not
/// there then.
void look_at_a_sum(const std::string& fails) {
  const Mutation mutation;
  GpuJobOptions options = test::with(GpuOperationsChoice::nccl);
  options.nccl.async_completion = false;
  gpu_job(1, options, [&](GpuRank& rank) {
    auto x = rank.tensor<float>({1});
    ClosedStream gate(rank);
    if (fails.empty()) gate.open();
    mutation.begin(fails);
    GpuRequest request(HVD_ALLREDUCE, "x");
    request.request.operation.prescale = 2;
    request.add(rank, x.data(), x.data(), HVD_FLOAT32, {1});
    const auto done = rank.submit(request.request);
    rank.thread().wait(done->handle);
    if (*x.data() != 2) {
      std::fprintf(stderr, "too early\n");
      std::abort();
    }
    rank.framework().finish();
  });
}

TEST_F(GpuMutations, TheHostWaitsForTheGpuIfCompletionIsNotAsynchronous) {
  look_at_a_sum("");
  EXPECT_DEATH(look_at_a_sum("cuEventQuery=0"), "too early");
}

using BeginCapture = device::Result(device::StreamHandle, device::CaptureMode);
using EndCapture = device::Result(device::StreamHandle, void**);

/// The first operation of two ranks, while rank 0 captures work on a stream of its own in the mode
/// of PyTorch: each call of another thread that is not in the relaxed mode invalidates the capture.
void reduce_during_a_capture(const GpuJobOptions& options, const std::string& fails) {
  const Mutation mutation;
  std::barrier both(2);
  gpu_job(2, options, [&](GpuRank& rank) {
    auto x = rank.tensor<float>({1});
    const device::Stream captured(rank.context());
    rank.framework().finish();
    both.arrive_and_wait();
    if (rank.rank() == 0) {
      device::test::stand_in<BeginCapture>("cuStreamBeginCapture_v2")(captured.handle(),
                                                                      device::CaptureMode::global);
      mutation.begin(fails);
    }
    both.arrive_and_wait();
    GpuRequest request(HVD_ALLREDUCE, "x");
    request.add(rank, x.data(), x.data(), HVD_FLOAT32, {1});
    const auto done = rank.submit(request.request);
    EXPECT_EQ(rank.finish(done), "");
    await([&] { return !done->result || done->result->reached(); });
    both.arrive_and_wait();
    void* graph = nullptr;
    if (rank.rank() == 0)
      device::test::stand_in<EndCapture>("cuStreamEndCapture")(captured.handle(), &graph);
    both.arrive_and_wait();
    EXPECT_EQ(x.read().front(), 2);
  });
}

TEST_F(GpuMutations, NoThreadOfTheRuntimeDisturbsACapture) {
  const GpuJobOptions ways[] = {test::with(GpuOperationsChoice::nccl),
                                test::with(GpuOperationsChoice::host), test::with_ipc()};
  for (const GpuJobOptions& way : ways) {
    reduce_during_a_capture(way, "");
    EXPECT_DEATH(reduce_during_a_capture(way, "cuThreadExchangeStreamCaptureMode=0"),
                 "it invalidates the capture of another thread");
  }
}

}  // namespace
}  // namespace hvd
