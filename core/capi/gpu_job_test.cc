// What completes when on GPUs, and jobs whose ranks differ: joined ranks, process sets, GPUs that
// are shared, streams that are captured. Also that every wait for an event is needed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "core/capi/gpu_testing.h"

namespace hvd {
namespace {

using device::test::await;
using device::test::error_of;
using device::test::Variable;
using test::ClosedStream;
using test::gpu_job;
using test::GpuJobOptions;
using test::GpuRank;
using test::GpuRequest;
using test::Stderr;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

class GpuJobs : public device::test::StandIn {};

/// An allreduce in place.
GpuRequest sum(GpuRank& rank, const char* name, const GpuRank::Tensor<float>& x) {
  GpuRequest made(HVD_ALLREDUCE, name);
  made.add(rank, x.data(), x.data(), HVD_FLOAT32, {static_cast<int64_t>(x.count())});
  return made;
}

TEST_F(GpuJobs, AnOperationCompletesWhenItIsQueuedAndKeepsItsMemoryUntilTheGpuIsDone) {
  gpu_job(2, test::with(GpuOperationsChoice::nccl), [](GpuRank& rank) {
    auto x = rank.tensor<float>({1});
    ClosedStream gate(rank);
    std::atomic<int> released{0};
    GpuRequest request = sum(rank, "x", x);
    request.request.owner = &released;
    request.request.release = [](void* owner) { ++*static_cast<std::atomic<int>*>(owner); };
    const auto first = rank.submit(request.request);
    rank.thread().wait(first->handle);
    EXPECT_FALSE(first->result->reached()) << "the GPU waits for the input";
    EXPECT_EQ(released.load(), 0);
    gate.open();
    await([&] { return released.load() == 1; });
    EXPECT_TRUE(first->result->reached());
    EXPECT_EQ(rank.finish(first), "");
    EXPECT_THAT(x.read(), Each(2.0f));
  });
}

TEST_F(GpuJobs, TheSameNameMayBeSubmittedWhileTheGpuStillWorksOnIt) {
  gpu_job(2, test::with(GpuOperationsChoice::nccl), [](GpuRank& rank) {
    auto x = rank.tensor<float>({1});
    ClosedStream gate(rank);
    const auto first = rank.submit(sum(rank, "x", x).request);
    EXPECT_EQ(rank.finish(first), "");
    const auto second = rank.submit(sum(rank, "x", x).request);
    EXPECT_FALSE(first->result->reached());
    gate.open();
    EXPECT_EQ(rank.finish(second), "");
    EXPECT_THAT(x.read(), Each(4.0f));
  });
}

TEST_F(GpuJobs, NoThreadWaitsForTheGpuUnlessManyBatchesAreQueued) {
  gpu_job(2, test::with(GpuOperationsChoice::nccl), [](GpuRank& rank) {
    auto x = rank.tensor<float>({1});
    ClosedStream gate(rank);
    std::vector<std::shared_ptr<Completion>> all;
    for (int i = 0; i < 16; ++i) {
      all.push_back(rank.submit(sum(rank, "x", x).request));
      EXPECT_EQ(rank.finish(all.back()), "");
    }
    EXPECT_FALSE(all.front()->result->reached());
    gate.open();
    EXPECT_THAT(x.read(), Each(65536.0f));
  });
}

TEST_F(GpuJobs, WithoutAsyncCompletionTheHostWaitsForTheGpu) {
  for (const auto choice : {GpuOperationsChoice::nccl, GpuOperationsChoice::host}) {
    GpuJobOptions options = test::with(choice);
    options.nccl.async_completion = false;
    gpu_job(2, options, [](GpuRank& rank) {
      auto x = rank.tensor<float>({1});
      const auto done = rank.submit(sum(rank, "x", x).request);
      rank.thread().wait(done->handle);
      EXPECT_EQ(done->result, nullptr);
      EXPECT_EQ(*x.data(), 2.0f) << "memory of the GPU that the host may look at here";
      rank.framework().finish();
    });
  }
}

TEST_F(GpuJobs, ARankThatHasJoinedContributesNeutralElements) {
  for (const auto choice : {GpuOperationsChoice::nccl, GpuOperationsChoice::host}) {
    for (const bool had_gpu : {true, false}) {
      gpu_job(3, test::with(choice), [=](GpuRank& rank) {
        auto x = rank.tensor<float>(std::vector<float>(20, 2.0f));
        auto y = rank.tensor<float>(std::vector<float>(3, 2.0f));
        if (had_gpu) {
          EXPECT_EQ(rank.finish(rank.submit(sum(rank, "first", y).request)), "");
        }
        if (rank.rank() != 1) {
          GpuRequest request = sum(rank, "x", x);
          request.add(rank, y.data(), y.data(), HVD_FLOAT32, {3});
          request.request.operation.op = HVD_PRODUCT;
          EXPECT_EQ(rank.finish(rank.submit(request.request)), "");
          EXPECT_THAT(x.read(), Each(4.0f));
          EXPECT_EQ(rank.finish(rank.submit(sum(rank, "one", x).request)), "");
          EXPECT_THAT(x.read(), Each(8.0f));
        }
        hvd_request join{};
        join.operation.kind = HVD_JOIN;
        EXPECT_EQ(rank.finish(rank.submit(join)), "");
        x.read();
        y.read();
      });
    }
  }
}

TEST_F(GpuJobs, AMessageGoesFromOneRankToAnotherAndKeepsItsMemoryOnTheSender) {
  for (const auto choice : {GpuOperationsChoice::nccl, GpuOperationsChoice::host}) {
    gpu_job(3, test::with(choice), [](GpuRank& rank) {
      if (rank.rank() == 1) return;
      const bool sends = rank.rank() == 2;
      auto x = rank.tensor<float>({sends ? 7.0f : 0.0f, sends ? 8.0f : 0.0f});
      for (int i = 0; i < 20; ++i) {  // more than are launched at a time
        GpuRequest request(HVD_MESSAGE, "m");
        request.add(rank, x.data(), sends ? nullptr : x.data(), HVD_FLOAT32, {2});
        request.request.operation.root = 2;
        request.request.operation.receiver = 0;
        EXPECT_EQ(rank.finish(rank.submit(request.request)), "");
      }
      EXPECT_THAT(x.read(), ::testing::ElementsAre(7.0f, 8.0f));
    });
  }
}

TEST_F(GpuJobs, RanksOnOneGpuGoThroughHostMemoryOrFailByChoice) {
  GpuJobOptions options = test::with(GpuOperationsChoice::automatic);
  options.one_gpu = true;
  gpu_job(2, options, [](GpuRank& rank) {
    auto x = rank.tensor<float>({1});
    EXPECT_EQ(rank.finish(rank.submit(sum(rank, "x", x).request)), "");
    EXPECT_THAT(x.read(), Each(2.0f));
  });
  options.nccl.choice = GpuOperationsChoice::nccl;
  gpu_job(2, options, [](GpuRank& rank) {
    auto x = rank.tensor<float>({1});
    const auto failed = rank.submit(sum(rank, "x", x).request);
    EXPECT_THAT(rank.finish(failed), AllOf(HasSubstr("use the same GPU of host host"),
                                           HasSubstr("HOROVOD_GPU_OPERATIONS=host")));
    rank.framework().finish();
  });
}

TEST_F(GpuJobs, InstancesOfOneGpuGoThroughHostMemoryOrFailByChoice) {
  const Variable mig("FAKE_CUDA_MIG", "1");
  gpu_job(2, test::with(GpuOperationsChoice::automatic), [](GpuRank& rank) {
    auto x = rank.tensor<float>({1});
    EXPECT_EQ(rank.finish(rank.submit(sum(rank, "x", x).request)), "");
    EXPECT_THAT(x.read(), Each(2.0f));
  });
  gpu_job(2, test::with(GpuOperationsChoice::nccl), [](GpuRank& rank) {
    auto x = rank.tensor<float>({1});
    const auto failed = rank.submit(sum(rank, "x", x).request);
    EXPECT_THAT(rank.finish(failed),
                AllOf(HasSubstr("rank 0 (CUDA_VISIBLE_DEVICES not set) and rank 1"),
                      HasSubstr("use instances (MIG) of one GPU of host host, at 0000:01:00.0"),
                      HasSubstr("HOROVOD_GPU_OPERATIONS=host")));
    rank.framework().finish();
  });
}

TEST_F(GpuJobs, ACollectiveThatHangsOnTheGpuIsReportedByItsRanks) {
  const Stderr messages;
  GpuJobOptions options = test::with(GpuOperationsChoice::nccl);
  options.nccl.slow_after = std::chrono::milliseconds(20);
  std::string text;
  gpu_job(2, options, [&](GpuRank& rank) {
    auto x = rank.tensor<float>({1});
    ClosedStream gate(rank);
    EXPECT_EQ(rank.finish(rank.submit(sum(rank, "x", x).request)), "");
    if (rank.rank() == 0) text = messages.await({"the GPU has worked"});
    gate.open();
    x.read();
  });
  EXPECT_THAT(text, AllOf(HasSubstr("allreduce of 1 tensors of the ranks 0, 1, by NCCL"),
                          HasSubstr("NCCL_P2P_DISABLE=1"), HasSubstr("disable ACS")));
}

TEST_F(GpuJobs, SubmissionRefusesWhatAGpuCannotDo) {
  gpu_job(1, test::with(GpuOperationsChoice::automatic), [](GpuRank& rank) {
    auto x = rank.tensor<float>({1});
    EXPECT_EQ(rank.finish(rank.submit(sum(rank, "x", x).request)), "");
    const auto refusal = [&](GpuRequest& request) {
      return error_of([&] { rank.submit(request.request); });
    };
    GpuRequest elsewhere = sum(rank, "x", x);
    elsewhere.inputs[0].device.index = 1;
    EXPECT_THAT(refusal(elsewhere),
                AllOf(HasSubstr("allreduce \"x\": input 0 of rank 0 is on device 1 of CUDA: "),
                      HasSubstr("earlier tensors of this process were on GPU 0")));
    const auto begin =
        device::test::stand_in<device::Result(device::StreamHandle, device::CaptureMode)>(
            "cuStreamBeginCapture_v2");
    const auto end =
        device::test::stand_in<device::Result(device::StreamHandle, void**)>("cuStreamEndCapture");
    begin(rank.framework().stream(), device::CaptureMode::global);
    GpuRequest captured = sum(rank, "x", x);
    EXPECT_THAT(refusal(captured), HasSubstr("operations of Horovod cannot be captured"));
    void* graph = nullptr;
    end(rank.framework().stream(), &graph);
    GpuRequest gathered(HVD_ALLGATHER, "x");
    gathered.add(rank, x.data(), x.data(), HVD_FLOAT32, {1});
    EXPECT_THAT(refusal(gathered), HasSubstr("need `allocate`"));
    x.read();
  });
}

TEST_F(GpuJobs, AGpuThatDoesNotExistOrALibraryThatIsMissingIsAnErrorOfTheCaller) {
  GpuJobOptions options = test::with(GpuOperationsChoice::automatic);
  options.nccl.places.by_knob = "/nowhere/libnccl.so.2";
  gpu_job(1, options, [](GpuRank& rank) {
    auto x = rank.tensor<float>({1});
    EXPECT_THAT(error_of([&] { rank.submit(sum(rank, "x", x).request); }),
                AllOf(HasSubstr("allreduce \"x\": input 0 of rank 0 is on device 0 of CUDA: "),
                      HasSubstr("HOROVOD_NCCL_LIBRARY=/nowhere/libnccl.so.2 cannot be loaded")));
    rank.framework().finish();
  });
  gpu_job(1, test::with(GpuOperationsChoice::host), [](GpuRank& rank) {
    auto x = rank.tensor<float>({1});
    GpuRequest beyond = sum(rank, "x", x);
    beyond.inputs[0].device.index = 9;
    EXPECT_THAT(error_of([&] { rank.submit(beyond.request); }),
                HasSubstr("GPU 9 does not exist in this process, which sees 4 GPUs"));
    rank.framework().finish();
  });
}

TEST_F(GpuJobs, ACommunicatorThatDoesNotConnectEndsTheJobAfterTheDeadline) {
  const Variable polls("FAKE_NCCL_POLLS", "1000000000");
  GpuJobOptions options = test::with(GpuOperationsChoice::nccl);
  options.nccl.connect_timeout = std::chrono::milliseconds(50);
  gpu_job(2, options, [](GpuRank& rank) {
    auto x = rank.tensor<float>({1});
    EXPECT_THAT(
        rank.finish(rank.submit(sum(rank, "x", x).request)),
        AllOf(HasSubstr("NCCL has not connected 2 ranks"), HasSubstr("NCCL_P2P_DISABLE=1")));
    rank.framework().finish();
  });
}

// ---- every wait is needed: one is left out, and the stand-in aborts

/// One allreduce of one rank, behind a producer and before a consumer. `sent_as`: see hvd_request.
void reduce_once(GpuOperationsChoice choice, const std::string& fails,
                 const hvd_dtype* sent_as = nullptr) {
  const test::Mutation mutation;
  gpu_job(1, test::with(choice), [&](GpuRank& rank) {
    if (!fails.empty()) {  // else no wait is needed where the host has seen the end
      device::test::stand_in<decltype(fake_cuda_ignore_host)>("fake_cuda_ignore_host")(
          rank.framework().stream());
    }
    auto x = rank.tensor<float>({1}), y = rank.tensor<float>({1});
    mutation.begin(fails);
    GpuRequest request = sum(rank, "x", x);
    request.add(rank, y.data(), y.data(), HVD_FLOAT32, {1});
    request.request.sent_as = sent_as;
    const auto done = rank.submit(request.request);
    EXPECT_EQ(rank.finish(done), "");
    await([&] { return done->result->reached(); });  // does not replace a wait for an event
    x.read();
    y.read();
  });
}

TEST_F(GpuJobs, EveryWaitIsNeeded) {
  reduce_once(GpuOperationsChoice::nccl, "");
  const char* const producer = "memory that fill on stream";
  const char* const consumer = "read on stream .* reads memory that";
  for (const auto choice : {GpuOperationsChoice::nccl, GpuOperationsChoice::host}) {
    // The first wait is that of our stream for the inputs, the second that of the framework's.
    EXPECT_DEATH(reduce_once(choice, "cuStreamWaitEvent=0"), producer);
    EXPECT_DEATH(reduce_once(choice, "cuStreamWaitEvent=0@2"), consumer);
    EXPECT_DEATH(reduce_once(choice, "cuEventRecord=0"), producer);
  }
  EXPECT_DEATH(reduce_once(GpuOperationsChoice::nccl, "cuEventRecord=0@2"), consumer);
  // Copies from and to the GPU are on two streams; between them, the host waits for an event.
  EXPECT_DEATH(reduce_once(GpuOperationsChoice::host, "cuEventRecord=0@2"),
               "cuMemcpyAsync on stream .* memory that cuMemcpyAsync on stream");
}

TEST_F(GpuJobs, EveryWaitIsNeededForTensorsThatAreConverted) {
  const hvd_dtype half = HVD_FLOAT16;
  for (const auto choice : {GpuOperationsChoice::nccl, GpuOperationsChoice::host}) {
    reduce_once(choice, "", &half);
    EXPECT_DEATH(reduce_once(choice, "cuStreamWaitEvent=0", &half),
                 "hvd_scale_f32_f16 on stream .* reads memory that fill on stream");
    EXPECT_DEATH(reduce_once(choice, "cuStreamWaitEvent=0@2", &half),
                 "read on stream .* reads memory that hvd_scale_f16_f32 on stream");
    EXPECT_DEATH(reduce_once(choice, "cuEventRecord=0", &half),
                 "hvd_scale_f32_f16 on stream .* reads memory that fill on stream");
  }
  // The kernel writes the pinned memory that the next one reads on the other stream.
  EXPECT_DEATH(reduce_once(GpuOperationsChoice::host, "cuEventRecord=0@2", &half),
               "hvd_scale_f16_f32 on stream .* memory that hvd_scale_f32_f16 on stream");
}

// ---- communicators

/// A communicator of one rank, and memory on its GPU.
struct OneRank {
  explicit OneRank(std::chrono::milliseconds deadline = std::chrono::seconds(20)) {
    nccl::Devices devices({}, GpuOperationsChoice::nccl);
    gpu = devices.use(0);
    nccl = devices.nccl();
    const nccl::OnGpu current(gpu->context());
    memory = std::make_unique<device::DeviceMemory>(gpu->context(), 64);
    device::UniqueId id{};
    nccl->check(nccl->call().get_unique_id(&id), nullptr, "ncclGetUniqueId");
    made = std::make_unique<nccl::Communicator>(
        nccl, nccl::Communicator::Options{.id = id, .deadline = deadline});
    await([this] { return made->settled(); });
  }
  ~OneRank() {
    const nccl::OnGpu current(gpu->context());
    nccl->call().comm_abort(made->handle());
    await([this] { return gpu->idle(); });
  }
  nccl::Call call() const {
    return {.function = nccl::Call::Function::all_reduce,
            .from = memory->address(),
            .to = memory->address(),
            .count = 4,
            .type = device::NcclType::float32};
  }

  std::shared_ptr<nccl::Gpu> gpu;
  std::shared_ptr<const device::Nccl> nccl;
  std::unique_ptr<device::DeviceMemory> memory;
  std::unique_ptr<nccl::Communicator> made;
};

TEST_F(GpuJobs, AFailureInsideAGroupOfCallsEndsTheGroup) {
  OneRank rank;
  const nccl::OnGpu current(rank.gpu->context());
  const Variable fails("FAKE_NCCL_FAIL", "ncclAllReduce=3@2");
  const std::vector<nccl::Call> calls(3, rank.call());
  EXPECT_THAT(error_of([&] { rank.made->queue(calls, rank.gpu->stream()); }),
              HasSubstr("a collective of NCCL: NCCL 2.28.9 failed with internal error"));
  EXPECT_DEATH(rank.nccl->call().group_end(), "there was no ncclGroupStart on this thread");
}

TEST_F(GpuJobs, TheFirstCallsMustConnectBeforeTheDeadline) {
  OneRank rank(std::chrono::seconds(2));  // in which it is made on a busy machine too
  const nccl::OnGpu current(rank.gpu->context());
  const Variable polls("FAKE_NCCL_POLLS", "1000000000");
  const std::vector<nccl::Call> calls{rank.call()};
  rank.made->queue(calls, rank.gpu->stream());
  std::string error;
  for (int i = 0; i < 60'000 && error.empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    error = error_of([&] { rank.made->settled(); });
  }
  EXPECT_THAT(error, HasSubstr("NCCL has not connected 1 ranks"));
}

}  // namespace
}  // namespace hvd
