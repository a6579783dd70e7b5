// Every wait of the code for GPUs is needed: one is left out, and the stand-in aborts, or a value
// is wrong. The list of all mutations is in tests/fake_cuda/README.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "core/capi/gpu_testing.h"

namespace hvd {
namespace {

using device::DeviceMemory;
using device::test::await;
using test::gpu_job;
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

}  // namespace
}  // namespace hvd
