// The buffers of the runtime on GPUs and in pinned memory: what they hold at a time, how large they
// become, and that they are counted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "core/backend/nccl/devices.h"
#include "core/backend/nccl/mover.h"
#include "core/capi/gpu_testing.h"

namespace hvd {
namespace {

using device::test::await;
using test::gpu_job;
using test::GpuJobOptions;
using test::GpuRank;
using test::GpuRequest;
using ::testing::Each;

class GpuBuffers : public device::test::StandIn {};

/// A host backend whose runs wait until the test allows them, then add 1 to a float32 tensor, or
/// store their number in it, as a broadcast stores what another rank has.
class HeldBackend final : public Backend {
 public:
  enum class Stores : unsigned char { sum, number };
  explicit HeldBackend(Stores stores) : stores(stores) {}

  std::string_view name() const override { return "held"; }
  std::unique_ptr<Run> start(GroupLevels&, Batch batch) override {
    return std::make_unique<Held>(*this, started++, batch.tensors.at(0));
  }

  const Stores stores;
  int started = 0;
  int allowed = 0;

 private:
  struct Held final : Run {
    Held(HeldBackend& owner_, int index_, BatchTensor tensor_)
        : owner(owner_), index(index_), tensor(std::move(tensor_)) {}
    Progress advance() override {
      if (owner.allowed <= index) return Progress::waiting;
      const auto* const in = reinterpret_cast<const float*>(tensor.input);
      auto* const out = reinterpret_cast<float*>(tensor.output);
      if (owner.stores == Stores::number)  // a broadcast is one of bytes
        std::fill_n(out, tensor.shape[0] / static_cast<int64_t>(sizeof(float)), index);
      for (int64_t i = 0; owner.stores == Stores::sum && i < tensor.shape[0]; ++i)
        out[i] = in[i] + 1;
      return Progress::done;
    }
    HeldBackend& owner;
    const int index;
    const BatchTensor tensor;
  };
};

constexpr size_t kElements = 64;  ///< of a segment

/// One rank that stages a tensor of `segments` segments, in place: reduces it, or gets it by a
/// broadcast of another rank.
struct Staging {
  explicit Staging(size_t segments, OperationKind kind = OperationKind::allreduce)
      : x(rank.tensor<float>(std::vector<float>(segments * kElements, 1.0f))),
        host(kind == OperationKind::broadcast ? HeldBackend::Stores::number
                                              : HeldBackend::Stores::sum) {
    if (kind == OperationKind::broadcast) gate.emplace(rank);
    nccl::Devices devices({}, GpuOperationsChoice::host);
    gpu = devices.use(0);
    const nccl::OnGpu current(gpu->context());
    Batch batch{.operation = {.kind = kind, .dtype = DType::float32, .root = 1}};
    auto* const data = reinterpret_cast<std::byte*>(x.data());
    batch.tensors.push_back({.input = data,
                             .output = data,
                             .shape = {static_cast<int64_t>(x.count())},
                             .ready = gpu->point(rank.framework().stream())});
    nccl::MoverFacts facts{.batch = std::move(batch)};
    facts.segment_bytes = kElements * sizeof(float);
    if (kind == OperationKind::broadcast) facts.size = 2;
    mover = nccl::staged_mover(gpu, host, groups, std::move(facts));
  }
  Progress advance() {
    const nccl::OnGpu current(gpu->context());
    return mover->advance();
  }
  void await_idle() {
    const nccl::OnGpu current(gpu->context());
    await([&] { return gpu->idle(); });
  }
  std::vector<float> finish() {
    host.allowed = 1000;
    await([&] { return advance() == Progress::launched; });
    return read_result();
  }
  std::vector<float> read_result() {
    mover->result()->delay(rank.framework().stream());
    auto read = x.read();
    await([&] { return advance() == Progress::done; });
    return read;
  }

  GpuRank rank{0, 0};
  GpuRank::Tensor<float> x;
  std::optional<test::ClosedStream> gate{};  ///< of a broadcast: what used the tensor before
  HeldBackend host;
  GroupLevels groups;
  std::shared_ptr<nccl::Gpu> gpu;
  std::unique_ptr<nccl::Mover> mover;
};

TEST_F(GpuBuffers, NeighbouringSegmentsAreCopiedWhileTheHostWorksOnOne) {
  Staging staging(7);
  await([&] {
    staging.advance();
    return staging.host.started == 1;
  });
  staging.await_idle();
  staging.host.allowed = 1;
  staging.advance();
  staging.advance();
  EXPECT_EQ(staging.host.started, 2) << "the second segment was copied during the first run";
  staging.await_idle();
  EXPECT_EQ(staging.x.data()[0], 2) << "the first segment is copied back during the second run";
  EXPECT_EQ(staging.x.data()[kElements], 1);
  EXPECT_THAT(staging.finish(), Each(2.0f));
  EXPECT_EQ(staging.host.started, 7);
}

/// Stages seven segments, without the waits for events from the `first` on.
void stage_without_waits(const std::string& first) {
  Staging staging(7);
  const device::test::Variable left_out("FAKE_CUDA_FAIL", "cuStreamWaitEvent=0@" + first);
  staging.finish();
}

TEST_F(GpuBuffers, ASegmentThatIsCopiedFromTheGpuWaitsForTheOneThatHadItsPlace) {
  stage_without_waits("1000");
  // The first wait is for the input, the second for the output.
  EXPECT_DEATH(stage_without_waits("3"), "cuMemcpyAsync on stream .* memory that cuMemcpyAsync");
}

/// A broadcast to a GPU that is busy while the host has all segments. Aborts if a value is wrong.
void receive_on_a_busy_gpu(const std::string& fails) {
  const test::Mutation mutation;
  Staging staging(7, OperationKind::broadcast);
  mutation.begin(fails);
  staging.host.allowed = 1000;
  bool is_launched = false;
  for (int i = 0; i < 100 && !is_launched; ++i)
    is_launched = staging.advance() == Progress::launched;
  mutation.begin("");
  staging.gate->open();
  const std::vector<float> values = is_launched ? staging.read_result() : staging.finish();
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] == static_cast<float>(i / kElements)) continue;
    std::fprintf(stderr, "wrong value\n");
    std::abort();
  }
}

TEST_F(GpuBuffers, TheHostStoresToAPlaceThatWasCopiedToTheGpu) {
  receive_on_a_busy_gpu("");
  EXPECT_DEATH(receive_on_a_busy_gpu("cuEventQuery=0"), "wrong value");
}

/// An allreduce of one tensor in place.
void sum(GpuRank& rank, const GpuRank::Tensor<float>& x) {
  GpuRequest request(HVD_ALLREDUCE, "x");
  request.add(rank, x.data(), x.data(), HVD_FLOAT32, {static_cast<int64_t>(x.count())});
  EXPECT_EQ(rank.finish(rank.submit(request.request)), "");
}

TEST_F(GpuBuffers, ATensorOfAnySizeIsStagedInThreeSegments) {
  gpu_job(2, test::with(GpuOperationsChoice::host), [](GpuRank& rank) {
    auto x = rank.tensor<float>(std::vector<float>(5 * nccl::kSegmentBytes / sizeof(float), 1.0f));
    sum(rank, x);
    EXPECT_THAT(x.read(), Each(2.0f));
    EXPECT_EQ(counters_of(rank).pinned_bytes, 3 * (nccl::kSegmentBytes + 512 * KiB + 64 * KiB));
    EXPECT_EQ(counters_of(rank).device_bytes, 0u);
  });
}

TEST_F(GpuBuffers, AGroupOfAnySizeIsPackedIntoLimitedScratchMemory) {
  GpuJobOptions options = test::with(GpuOperationsChoice::nccl);
  options.nccl.scratch_bytes = 5000;
  gpu_job(2, options, [](GpuRank& rank) {
    auto x = rank.tensor<float>(std::vector<float>(3000, 1.0f));
    auto y = rank.tensor<float>(std::vector<float>(1500, 2.0f));
    GpuRequest request(HVD_ALLREDUCE, "x");
    request.add(rank, x.data(), x.data(), HVD_FLOAT32, {3000});
    request.add(rank, y.data(), y.data(), HVD_FLOAT32, {1500});
    EXPECT_EQ(rank.finish(rank.submit(request.request)), "");
    EXPECT_THAT(x.read(), Each(2.0f));
    EXPECT_THAT(y.read(), Each(4.0f));
    const uint64_t bytes = counters_of(rank).device_bytes;
    EXPECT_GT(bytes, 0u);
    EXPECT_LE(bytes, 5000u);
  });
}

TEST_F(GpuBuffers, ABatchIsCountedByTheWayThatMovedIt) {
  gpu_job(2, test::with(GpuOperationsChoice::nccl), [](GpuRank& rank) {
    auto x = rank.tensor<float>({1});
    sum(rank, x);
    x.read();
    EXPECT_EQ(batches_by(rank, Mover::nccl), 1u) << "also the first, before which the ranks meet";
    EXPECT_EQ(batches_by(rank, Mover::staged), 0u);
  });
}

}  // namespace
}  // namespace hvd
