// An allreduce in levels on GPUs: NCCL within each host, the host backend across hosts. All ranks
// are in one thread, as in the tests of the host backend, each with a GPU of the stand-in driver.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <optional>
#include <ranges>
#include <thread>

#include "core/backend/host/testing.h"
#include "core/capi/gpu_testing.h"

namespace hvd {
namespace {

using test::GpuRank;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

class GpuLevels : public device::test::StandIn {};

nccl::NcclOptions options_in_levels(size_t scratch_bytes, size_t segment_bytes) {
  return {.choice = GpuOperationsChoice::nccl,
          .connect_timeout = std::chrono::seconds(20),
          .host = "host",
          .allreduce_in_levels = true,
          .segment_bytes = segment_bytes,
          .scratch_bytes = scratch_bytes};
}

/// Two hosts of two ranks.
class Hosts {
 public:
  static constexpr int kRanks = 4;

  explicit Hosts(const nccl::NcclOptions& options)
      : options_(options), job_({.ranks_per_host = {2, 2}, .levels = true}) {
    std::vector<int> all(kRanks);
    std::iota(all.begin(), all.end(), 0);
    for (int rank = 0; rank < kRanks; ++rank) {
      ranks_.push_back(std::make_unique<Rank>(rank, options_));
      ranks_.back()->backend.enter(job_.groups(rank), all);
    }
  }
  ~Hosts() {
    for (auto& rank : ranks_) rank->backend.end_device_work();  // together
    while (!ranks_.empty()) ranks_.pop_back();                  // their contexts are a stack
  }

  GpuRank& gpu(int rank) { return ranks_[static_cast<size_t>(rank)]->gpu; }
  OwnBuffers buffers(int rank) { return ranks_[static_cast<size_t>(rank)]->backend.own_buffers(); }

  /// When a rank that has joined gets its GPU.
  enum class Gets { gpu_before, gpu_meanwhile };

  /// Runs the batches of all ranks, which have the same number. Returns how they were moved.
  Mover run(std::vector<Batch> batches, Gets gets = Gets::gpu_before) {
    ++sequence_;
    std::vector<std::unique_ptr<Run>> runs;
    for (int rank = 0; rank < kRanks; ++rank) {
      Batch& batch = batches[static_cast<size_t>(rank)];
      batch.sequence = sequence_;
      batch.operation.device = DeviceKind::cuda;
      const device::ContextScope current(gpu(rank).context());
      for (BatchTensor& tensor : batch.tensors)
        if (tensor.input != nullptr) tensor.ready = mark(rank);
      const bool has_joined = batch.tensors[0].input == nullptr;
      if (has_joined && gets == Gets::gpu_before) mark(rank);
      auto& backend = ranks_[static_cast<size_t>(rank)]->backend;
      runs.push_back(backend.start(job_.groups(rank), std::move(batch)));
      if (has_joined) mark(rank);
    }
    await_all(runs, Progress::launched);
    for (int rank = 0; rank < kRanks; ++rank)
      if (const auto& run = runs[static_cast<size_t>(rank)])
        run->result()->delay(gpu(rank).framework().stream());
    const Mover mover = runs[0]->route().mover;
    await_all(runs, Progress::done);
    return mover;
  }

 private:
  struct Rank {
    Rank(int rank, const nccl::NcclOptions& options) : gpu(rank, rank), backend(options, host) {}
    GpuRank gpu;
    HostBackend host{HostRules{.allreduce_in_levels = true}};
    nccl::NcclBackend backend;
  };
  std::shared_ptr<const DevicePoint> mark(int rank) {
    return ranks_[static_cast<size_t>(rank)]->backend.mark(rank, gpu(rank).framework().stream());
  }

  /// Advances each run until it returns `progress` or is done, and is destroyed.
  void await_all(std::vector<std::unique_ptr<Run>>& runs, Progress progress) {
    std::vector<bool> has_reached(runs.size());
    device::test::await([&] {
      for (size_t i = 0; i < runs.size(); ++i) {
        if (!runs[i] || has_reached[i]) continue;
        const Progress now = runs[i]->advance();
        has_reached[i] = now == progress;
        if (now == Progress::done) runs[i].reset();
      }
      for (int rank = 0; rank < kRanks; ++rank) job_.pump(rank);
      return std::ranges::all_of(std::views::iota(size_t{0}, runs.size()),
                                 [&](size_t i) { return !runs[i] || has_reached[i]; });
    });
  }

  const nccl::NcclOptions options_;
  test::Job job_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  uint64_t sequence_ = 0;
};

using Tensors = std::vector<std::vector<std::unique_ptr<GpuRank::Tensor<float>>>>;  // [rank]

/// Tensors of these lengths that hold the number of the rank plus 1.
Tensors tensors_of(Hosts& hosts, const std::vector<size_t>& lengths) {
  Tensors made(Hosts::kRanks);
  for (int rank = 0; rank < Hosts::kRanks; ++rank) {
    const device::ContextScope current(hosts.gpu(rank).context());
    for (const size_t length : lengths)
      made[static_cast<size_t>(rank)].push_back(std::make_unique<GpuRank::Tensor<float>>(
          hosts.gpu(rank), std::vector<float>(length, static_cast<float>(rank + 1))));
  }
  return made;
}

std::vector<Batch> batches_of(const Tensors& tensors, const Operation& operation) {
  std::vector<Batch> made;
  for (const auto& of_rank : tensors) {
    Batch& batch = made.emplace_back();
    batch.operation = operation;
    for (const auto& tensor : of_rank) {
      auto* const data = reinterpret_cast<std::byte*>(tensor->data());
      batch.tensors.push_back(
          {.input = data, .output = data, .shape = {static_cast<int64_t>(tensor->count())}});
    }
  }
  return made;
}

void expect_all(Hosts& hosts, const Tensors& tensors, float expected) {
  for (int rank = 0; rank < Hosts::kRanks; ++rank) {
    const device::ContextScope current(hosts.gpu(rank).context());
    for (const auto& tensor : tensors[static_cast<size_t>(rank)])
      EXPECT_THAT(tensor->read(), Each(expected)) << "rank " << rank;
  }
}

constexpr Operation kSum{.kind = OperationKind::allreduce, .dtype = DType::float32};

TEST_F(GpuLevels, NcclReducesWithinHostsAndTheHostBackendAcrossThem) {
  for (const size_t bytes : {nccl::kSegmentBytes, size_t{256}}) {
    Hosts hosts(options_in_levels(bytes, bytes / 2));
    for (const auto& lengths : {std::vector<size_t>{1}, {1000}, {7, 300, 64}}) {
      const Tensors tensors = tensors_of(hosts, lengths);
      EXPECT_EQ(hosts.run(batches_of(tensors, kSum)), Mover::hierarchical);
      expect_all(hosts, tensors, 10);
      Operation average = kSum;
      average.op = ReduceOp::average;
      average.prescale = 2;
      hosts.run(batches_of(tensors, average));
      expect_all(hosts, tensors, 20);
      Operation largest = kSum;
      largest.op = ReduceOp::max;
      hosts.run(batches_of(tensors, largest));
      expect_all(hosts, tensors, 20);
    }
    EXPECT_LE(hosts.buffers(0).on_device, bytes);
  }
}

/// A sum in levels, without the waits for events from the `first` on.
void sum_in_levels_without_waits(const std::string& first) {
  Hosts hosts(options_in_levels(256, 128));
  const Tensors tensors = tensors_of(hosts, {200});
  hosts.run(batches_of(tensors, kSum));
  const device::test::Variable left_out("FAKE_CUDA_FAIL", "cuStreamWaitEvent=0@" + first);
  hosts.run(batches_of(tensors, kSum));
}

TEST_F(GpuLevels, AShareIsCopiedToTheHostBehindTheScatter) {
  sum_in_levels_without_waits("1000");
  EXPECT_DEATH(
      sum_in_levels_without_waits("5"),  // the first ones are for the tensors of four ranks
      "cuMemcpyAsync on stream .* reads memory that (hvd_copy|ncclReduceScatter) on stream");
}

TEST_F(GpuLevels, ARankThatHasJoinedTakesItsShare) {
  Hosts hosts(options_in_levels(1024, 256));
  const Tensors tensors = tensors_of(hosts, {500, 3});
  auto batches = batches_of(tensors, kSum);
  for (BatchTensor& tensor : batches[2].tensors) tensor.input = tensor.output = nullptr;
  EXPECT_EQ(hosts.run(std::move(batches)), Mover::hierarchical);
  hosts.gpu(2).framework().finish();
  for (const int rank : {0, 1, 3}) {
    const device::ContextScope current(hosts.gpu(rank).context());
    for (const auto& tensor : tensors[static_cast<size_t>(rank)])
      EXPECT_THAT(tensor->read(), Each(7.0f));
  }
}

/// One of its threads submits a tensor, which is refused later.
TEST_F(GpuLevels, ARankThatGetsItsGpuWhileTheRanksMeetHasNoneForThisBatch) {
  Hosts hosts(options_in_levels(1024, 256));
  const Tensors tensors = tensors_of(hosts, {500, 3});
  for (const Mover mover : {Mover::staged, Mover::hierarchical}) {
    auto batches = batches_of(tensors, kSum);
    for (BatchTensor& tensor : batches[2].tensors) tensor.input = tensor.output = nullptr;
    EXPECT_EQ(hosts.run(std::move(batches), Hosts::Gets::gpu_meanwhile), mover);
  }
  hosts.gpu(2).framework().finish();
  for (const int rank : {0, 1, 3}) {
    const device::ContextScope current(hosts.gpu(rank).context());
    for (const auto& tensor : tensors[static_cast<size_t>(rank)])
      EXPECT_THAT(tensor->read(), Each(21.0f));
  }
}

TEST_F(GpuLevels, OtherOperationsGoOverAllRanks) {
  Hosts hosts(options_in_levels(1024, 256));
  const Tensors tensors = tensors_of(hosts, {10});
  EXPECT_EQ(hosts.run(batches_of(tensors, kSum)), Mover::hierarchical);
  Operation broadcast = kSum;
  broadcast.kind = OperationKind::broadcast;
  EXPECT_EQ(hosts.run(batches_of(tensors, broadcast)), Mover::nccl);
  expect_all(hosts, tensors, 10);
}

/// The ranks of the first host reduce by NCCL, which waits for an input of rank 0. Those of the
/// second host wait for their shares.
TEST_F(GpuLevels, AHangWithinAHostIsReportedByItsRanksAndByThoseThatWaitForThem) {
  const test::Stderr messages;
  auto options = options_in_levels(1024, 256);
  options.slow_after = std::chrono::milliseconds(20);
  Hosts hosts(options);
  const Tensors tensors = tensors_of(hosts, {10});
  std::string text;
  {
    std::optional<test::ClosedStream> gate;
    {
      const device::ContextScope current(hosts.gpu(0).context());
      gate.emplace(hosts.gpu(0));
    }
    std::thread opens([&] {
      text = messages.await({"by NCCL within each host. ", "by NCCL within each host, has waited"});
      gate->open();
    });
    hosts.run(batches_of(tensors, kSum));
    opens.join();
  }
  expect_all(hosts, tensors, 10);
  EXPECT_THAT(text, AllOf(HasSubstr("the GPU has worked for 0 s on batch 1, allreduce of 1 tensors "
                                    "of the ranks 0, 1, 2, 3, by NCCL within each host. "),
                          HasSubstr("batch 1, allreduce of 1 tensors of the ranks 0, 1, 2, 3, by "
                                    "NCCL within each host, has waited for 0 s for data of other "
                                    "hosts")));
}

}  // namespace
}  // namespace hvd
