// Ranks that read each other's GPU memory: every wait is needed. All ranks are in one thread, so
// the test decides when a wait is left out; the stand-in aborts, or a sum is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "core/backend/nccl/devices.h"
#include "core/backend/nccl/ipc_mover.h"
#include "core/capi/gpu_testing.h"

namespace hvd {
namespace {

using device::test::await;
using test::GpuRank;
using test::Mutation;
using ::testing::Each;

class GpuIpcOrder : public device::test::StandIn {};

enum class Exchange : unsigned char { awaits_all, awaits_none };

/// How many exchanges each rank has entered and left.
struct Exchanges {
  Exchange kind = Exchange::awaits_all;
  std::vector<int> entered{}, left{};
};

/// Stands for the host backend of one rank.
class ExchangeBackend final : public Backend {
 public:
  ExchangeBackend(Exchanges& all, size_t rank) : all_(all), rank_(rank) {}
  std::string_view name() const override { return "exchange"; }
  std::unique_ptr<Run> start(GroupLevels&, Batch) override {
    ++all_.entered[rank_];
    return std::make_unique<One>(all_, rank_, all_.entered[rank_]);
  }

 private:
  struct One final : Run {
    One(Exchanges& all_, size_t rank_, int number_) : all(all_), rank(rank_), number(number_) {}
    Progress advance() override {
      const bool is_over = all.kind == Exchange::awaits_none ||
                           std::ranges::all_of(all.entered, [&](int one) { return one >= number; });
      if (is_over) ++all.left[rank];
      return is_over ? Progress::done : Progress::waiting;
    }
    Exchanges& all;
    const size_t rank;
    const int number;
  };
  Exchanges& all_;
  const size_t rank_;
};

constexpr size_t kPlaceBytes = 384;

/// A rank with a tensor of ones, which it sums to another one.
struct IpcRank {
  IpcRank(Exchanges& exchanges, int rank, size_t elements)
      : gpu(rank, rank),
        backend(exchanges, static_cast<size_t>(rank)),
        x(gpu.tensor<float>(std::vector<float>(elements, 1.0f))),
        sum(gpu.tensor<float>(std::vector<float>(elements))) {
    nccl::Devices devices({}, GpuOperationsChoice::host);
    own = devices.use(rank);
    const nccl::OnGpu current(own->context());
    memory = std::make_shared<nccl::IpcMemory>(own, kPlaceBytes);
    await([&] { return own->idle(); });
  }
  ~IpcRank() {
    const nccl::OnGpu current(own->context());
    await([&] { return own->idle(); });
    mover.reset();
  }

  void start(const std::vector<int>& ranks, DType sent_as) {
    const nccl::OnGpu current(own->context());
    Batch batch{.operation = {.dtype = sent_as}};
    batch.tensors.push_back({.input = reinterpret_cast<const std::byte*>(x.data()),
                             .output = reinterpret_cast<std::byte*>(sum.data()),
                             .shape = {static_cast<int64_t>(x.count())},
                             .ready = own->point(gpu.framework().stream())});
    if (sent_as != DType::float32) batch.tensors.back().stored_as = DType::float32;
    mover = nccl::ipc_mover({.gpu = own,
                             .memory = memory,
                             .ranks = ranks,
                             .batch = std::move(batch),
                             .rounds = {.rank = gpu.rank(),
                                        .size = static_cast<int>(ranks.size()),
                                        .place_bytes = kPlaceBytes,
                                        .reduced_by_all_bytes = 0}},
                            backend, groups);
    is_done = false;
  }
  void advance() {
    if (is_done) return;
    const nccl::OnGpu current(own->context());
    is_done = mover->advance() == Progress::done;
  }
  /// The host sees what was queued on the stream for packs.
  void see_packs() {
    const nccl::OnGpu current(own->context());
    await([&] {
      return own->driver().call().stream_query(own->download_stream()) == device::kSuccess;
    });
  }

  GpuRank gpu;
  ExchangeBackend backend;
  GroupLevels groups;
  GpuRank::Tensor<float> x, sum;
  std::shared_ptr<nccl::Gpu> own;
  std::shared_ptr<nccl::IpcMemory> memory;
  std::unique_ptr<nccl::Mover> mover;
  bool is_done = true;
};

class World {
 public:
  World(int ranks, size_t elements, Exchange kind = Exchange::awaits_all,
        DType sent_as = DType::float32)
      : sent_as_(sent_as) {
    exchanges_.kind = kind;
    for (int rank = 0; rank < ranks; ++rank) {
      exchanges_.entered.push_back(0);
      exchanges_.left.push_back(0);
      numbers_.push_back(rank);
    }
    for (int rank = 0; rank < ranks; ++rank)
      ranks_.push_back(std::make_unique<IpcRank>(exchanges_, rank, elements));
    for (auto& one : ranks_)
      for (auto& other : ranks_)
        one->memory->map(other->gpu.rank(), other->memory->card(), nccl::IpcMemory::Rank::thread);
  }
  ~World() {
    while (!ranks_.empty()) ranks_.pop_back();  // their contexts are a stack
  }

  IpcRank& rank(int index) { return *ranks_[static_cast<size_t>(index)]; }
  int entered(int rank) const { return exchanges_.entered[static_cast<size_t>(rank)]; }
  void start() {
    for (auto& one : ranks_) one->start(numbers_, sent_as_);
  }
  void advance() {
    for (auto& one : ranks_) one->advance();
  }
  bool is_done() const {
    return std::ranges::all_of(ranks_, [](const auto& one) { return one->is_done; });
  }
  /// Until all ranks have left that many exchanges.
  void run_to(int exchanges) {
    await([&] {
      advance();
      return std::ranges::all_of(exchanges_.left, [=](int one) { return one >= exchanges; });
    });
  }
  void finish() {
    await([&] {
      advance();
      return is_done();
    });
  }
  /// Aborts if a sum is wrong.
  void check() {
    for (auto& one : ranks_) {
      const nccl::OnGpu current(one->own->context());
      for (const float value : one->sum.read()) {
        if (value == static_cast<float>(ranks_.size())) continue;
        std::fprintf(stderr, "wrong sum\n");
        std::abort();
      }
    }
  }

 private:
  const DType sent_as_;
  Exchanges exchanges_;
  std::vector<int> numbers_;
  std::vector<std::unique_ptr<IpcRank>> ranks_;
};

constexpr size_t kOneRound = 90;  ///< elements; of three ranks, which reduce shares
constexpr int kExchanges = 3;     ///< of one such round: packed, reduced, read

TEST_F(GpuIpcOrder, ARankIsAwaitedUntilItsGpuHasPacked) {
  World world(2, 10);
  std::atomic<bool> open{false};
  world.rank(1).gpu.framework().queue("gate", {}, [&] { await([&] { return open.load(); }); });
  world.start();
  await([&] {
    world.advance();
    return world.entered(0) == 1;
  });
  for (int i = 0; i < 100; ++i) world.advance();
  EXPECT_EQ(world.entered(1), 0) << "its input is not there";
  EXPECT_FALSE(world.is_done());
  open.store(true);
  world.finish();
  world.check();
}

TEST_F(GpuIpcOrder, AnyNumberOfRoundsUsesFourPlaces) {
  for (const int ranks : {1, 2, 3, 4}) {
    World world(ranks, 1000);
    for (int batch = 0; batch < 2; ++batch) {
      world.start();
      world.finish();
      world.check();
    }
  }
}

/// Leaves out what the host asks the GPU, after so many exchanges. Then reduces again.
void reduce_without_queries(int exchanges, DType sent_as = DType::float32) {
  const Mutation mutation;
  World world(3, kOneRound, Exchange::awaits_all, sent_as);
  world.start();
  world.run_to(exchanges);
  mutation.begin("cuEventQuery=0");
  world.finish();
  if (exchanges < kExchanges - 1) return;
  world.start();
  world.finish();
}

TEST_F(GpuIpcOrder, TheHostSeesThatPlacesArePackedReducedAndRead) {
  EXPECT_DEATH(reduce_without_queries(0),
               "hvd_reduce_f32 on stream .* reads memory that hvd_copy on stream .* writes");
  EXPECT_DEATH(reduce_without_queries(1),
               "hvd_copy on stream .* reads memory that hvd_reduce_f32 on stream .* writes");
  EXPECT_DEATH(reduce_without_queries(2),
               "hvd_copy on stream .* writes memory that hvd_.* on stream .* reads");
}

/// A result that is used before the host has seen that it is there.
void use_too_early(DType sent_as = DType::float32) {
  const Mutation mutation;
  World world(3, kOneRound, Exchange::awaits_all, sent_as);
  world.start();
  world.run_to(2);
  mutation.begin("cuEventQuery=0");
  world.finish();
  world.check();
}

TEST_F(GpuIpcOrder, TheHostSeesThatTheResultIsThere) {
  EXPECT_DEATH(use_too_early(), "read on stream .* reads memory that hvd_copy on stream .* writes");
}

/// The host sees what is packed, but not what is read.
void reuse_a_place_too_early() {
  const Mutation mutation;
  World world(2, 5 * kPlaceBytes / 2 / sizeof(float));  // five rounds
  world.start();
  world.run_to(1);
  mutation.begin("cuEventQuery=0");
  for (int exchange = 2; exchange <= 5; ++exchange) {
    for (const int rank : {0, 1}) world.rank(rank).see_packs();
    world.run_to(exchange);
  }
}

TEST_F(GpuIpcOrder, APlaceIsPackedAgainWhenAllHaveReadIt) {
  EXPECT_DEATH(reuse_a_place_too_early(),
               "hvd_copy on stream .* writes memory that hvd_.* on stream .* reads");
}

/// One rank, behind a producer.
void reduce_without_waits(const std::string& fails, DType sent_as = DType::float32) {
  const Mutation mutation;
  World world(1, 10, Exchange::awaits_all, sent_as);
  mutation.begin(fails);
  world.start();
  world.finish();
}

TEST_F(GpuIpcOrder, PackingWaitsForTheTensors) {
  reduce_without_waits("");
  EXPECT_DEATH(reduce_without_waits("cuStreamWaitEvent=0"),
               "hvd_copy on stream .* reads memory that fill on stream");
}

TEST_F(GpuIpcOrder, TheSameHoldsForTensorsThatAreConverted) {
  const DType half = DType::float16;
  World world(3, kOneRound, Exchange::awaits_all, half);
  world.start();
  world.finish();
  world.check();
  EXPECT_DEATH(reduce_without_waits("cuStreamWaitEvent=0", half),
               "hvd_scale_f32_f16 on stream .* reads memory that fill on stream");
  EXPECT_DEATH(reduce_without_queries(0, half),
               "hvd_reduce_f16 on stream .* reads memory that hvd_scale_f32_f16 on stream");
  EXPECT_DEATH(reduce_without_queries(1, half),
               "hvd_scale_f16_f32 on stream .* reads memory that hvd_reduce_f16 on stream");
  EXPECT_DEATH(reduce_without_queries(2, half),
               "hvd_scale_f32_f16 on stream .* writes memory that hvd_.* on stream .* reads");
  EXPECT_DEATH(use_too_early(half),
               "read on stream .* reads memory that hvd_scale_f16_f32 on stream .* writes");
}

/// Rank 0 does everything before rank 1 begins.
void reduce_without_exchanges() {
  World world(2, 10, Exchange::awaits_none);
  world.start();
  await([&] {
    world.rank(0).advance();
    return world.rank(0).is_done;
  });
  world.finish();
  world.check();
}

TEST_F(GpuIpcOrder, RanksAwaitEachOther) {
  EXPECT_DEATH(reduce_without_exchanges(), "wrong sum|without waiting for an event");
}

}  // namespace
}  // namespace hvd
