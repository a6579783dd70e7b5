// Operations on GPU memory, on the stand-ins of the driver and NCCL: ranks are threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <numeric>

#include "core/capi/gpu_testing.h"

namespace hvd {
namespace {

using test::gpu_job;
using test::GpuJobOptions;
using test::GpuRank;
using test::GpuRequest;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

class Gpus : public device::test::StandIn {};

/// Runs jobs by NCCL, through host memory and between ranks that share memory, each with large
/// buffers and with small ones, so that batches take many rounds or segments.
template <class Body>
void in_every_way(int ranks, const Body& body) {
  for (const auto choice : {GpuOperationsChoice::nccl, GpuOperationsChoice::host}) {
    GpuJobOptions options = test::with(choice);
    gpu_job(ranks, options, body);
    options.nccl.segment_bytes = options.nccl.scratch_bytes = 256;
    gpu_job(ranks, options, body);
  }
  gpu_job(ranks, test::with_ipc(64 * KiB, 64 * KiB), body);
  gpu_job(ranks, test::with_ipc(256), body);
}

float number_of(const GpuRank& rank) { return static_cast<float>(rank.rank()); }

TEST_F(Gpus, AnAllreduceIsQueuedBehindItsInputAndBeforeItsReader) {
  for (const int ranks : {1, 2, 4}) {
    in_every_way(ranks, [&](GpuRank& rank) {
      auto x = rank.tensor<float>(std::vector<float>(1000, 1.0f));
      for (int round = 0; round < 5; ++round) {
        x.store(std::vector<float>(1000, number_of(rank) + static_cast<float>(round)));
        GpuRequest sum(HVD_ALLREDUCE, "x");
        sum.add(rank, x.data(), x.data(), HVD_FLOAT32, {1000});
        EXPECT_EQ(rank.finish(rank.submit(sum.request)), "");
        const int expected = ranks * (ranks - 1) / 2 + ranks * round;
        EXPECT_THAT(x.read(), Each(static_cast<float>(expected)));
      }
    });
  }
}

/// Reduces 1, 2, ... of three ranks, in one tensor or in a group of two.
template <class T>
void expect_reduced(const hvd_operation& operation, hvd_dtype dtype, T expected) {
  in_every_way(3, [&](GpuRank& rank) {
    const auto own = static_cast<T>(rank.rank() + 1);
    for (const int tensors : {1, 2}) {
      auto x = rank.tensor<T>(std::vector<T>(100, own));
      auto y = rank.tensor<T>(std::vector<T>(7, own));
      auto out = rank.tensor<T>(std::vector<T>(7));
      GpuRequest request(HVD_ALLREDUCE, "x");
      request.request.operation = operation;
      request.add(rank, y.data(), out.data(), dtype, {7});
      if (tensors == 2) request.add(rank, x.data(), x.data(), dtype, {100});
      EXPECT_EQ(rank.finish(rank.submit(request.request)), "");
      EXPECT_THAT(out.read(), Each(expected)) << "op " << operation.op << " dtype " << dtype;
      if (tensors == 2) {
        EXPECT_THAT(x.read(), Each(expected));
      }
      EXPECT_THAT(y.read(), Each(own)) << "the input";
    }
  });
}

TEST_F(Gpus, EveryReductionGivesTheSameAsOnTheHost) {
  const auto of = [](hvd_reduce_op op, double before = 1, double after = 1) {
    return hvd_operation{HVD_ALLREDUCE, op, before, after, 0, 0};
  };
  expect_reduced<float>(of(HVD_AVERAGE), HVD_FLOAT32, 2);
  expect_reduced<float>(of(HVD_SUM, 0.5, 3), HVD_FLOAT32, 9);
  expect_reduced<double>(of(HVD_PRODUCT), HVD_FLOAT64, 6);
  expect_reduced<int32_t>(of(HVD_MIN), HVD_INT32, 1);
  expect_reduced<int64_t>(of(HVD_MAX), HVD_INT64, 3);
  expect_reduced<uint16_t>(of(HVD_AVERAGE), HVD_BFLOAT16, 2);  // as subnormal numbers
  expect_reduced<uint8_t>(of(HVD_AVERAGE), HVD_UINT8, 2);  // scaled integers: through host memory
  expect_reduced<int16_t>(of(HVD_SUM), HVD_INT16, 6);      // NCCL lacks the type
}

TEST_F(Gpus, BoolIsReducedByMinAndMax) {
  in_every_way(2, [](GpuRank& rank) {
    const std::vector<uint8_t> own{1, 0, static_cast<uint8_t>(rank.rank())};
    for (const auto op : {HVD_MIN, HVD_MAX}) {
      auto x = rank.tensor<uint8_t>(own);
      GpuRequest request(HVD_ALLREDUCE, "x");
      request.request.operation.op = op;
      request.add(rank, x.data(), x.data(), HVD_BOOL, {3});
      EXPECT_EQ(rank.finish(rank.submit(request.request)), "");
      EXPECT_THAT(x.read(), ElementsAre(1, 0, op == HVD_MAX ? 1 : 0));
    }
  });
}

TEST_F(Gpus, AdasumGoesThroughHostMemory) {
  in_every_way(2, [](GpuRank& rank) {
    auto x = rank.tensor<float>({rank.rank() == 0 ? 1.0f : 0.0f, rank.rank() == 0 ? 0.0f : 1.0f});
    GpuRequest request(HVD_ALLREDUCE, "x");
    request.request.operation.op = HVD_ADASUM;
    request.add(rank, x.data(), x.data(), HVD_FLOAT32, {2});
    EXPECT_EQ(rank.finish(rank.submit(request.request)), "");
    EXPECT_THAT(x.read(), ElementsAre(1, 1)) << "orthogonal vectors are added";
  });
}

TEST_F(Gpus, ABroadcastMovesEveryType) {
  in_every_way(3, [](GpuRank& rank) {
    const bool is_root = rank.rank() == 1;
    auto x = rank.tensor<uint16_t>(std::vector<uint16_t>(50, is_root ? 7 : 0));
    auto y = rank.tensor<double>(std::vector<double>(3, is_root ? 2.5 : 0));
    auto out = rank.tensor<uint16_t>(std::vector<uint16_t>(50));
    GpuRequest of_two(HVD_BROADCAST, "x");
    of_two.request.operation.root = 1;
    of_two.add(rank, x.data(), out.data(), HVD_UINT16, {50});
    of_two.add(rank, x.data(), x.data(), HVD_UINT16, {50});
    const auto first = rank.submit(of_two.request);
    GpuRequest of_one(HVD_BROADCAST, "y");
    of_one.request.operation.root = 1;
    of_one.add(rank, y.data(), y.data(), HVD_FLOAT64, {3});
    const auto second = rank.submit(of_one.request);
    EXPECT_EQ(rank.finish(second), "");
    EXPECT_EQ(rank.finish(first), "");
    EXPECT_THAT(out.read(), Each(7));
    EXPECT_THAT(x.read(), Each(7));
    EXPECT_THAT(y.read(), Each(2.5));
  });
}

/// Sums float32 of three ranks that are sent as float16: 2049 becomes 2048.
void sum_as_half(GpuRank& rank) {
  const hvd_dtype half = HVD_FLOAT16;
  for (const size_t tensors : {1, 3}) {
    std::deque<GpuRank::Tensor<float>> all;
    GpuRequest request(HVD_ALLREDUCE, "x");
    request.request.operation.postscale = 0.5;
    for (size_t i = 0; i < tensors; ++i) {
      all.emplace_back(rank, std::vector<float>(70 * i + 5, 2049.0f));
      request.add(rank, all[i].data(), all[i].data(), HVD_FLOAT32,
                  {static_cast<int64_t>(70 * i + 5)});
    }
    request.request.sent_as = &half;
    EXPECT_EQ(rank.finish(rank.submit(request.request)), "");
    for (const auto& one : all) EXPECT_THAT(one.read(), Each(3072.0f));
  }
}

TEST_F(Gpus, Float32IsSentAsAHalfType) {
  in_every_way(3, [](GpuRank& rank) { sum_as_half(rank); });
}

TEST_F(Gpus, ConvertedTensorsMayShareMemoryAndMeetHalfTypes) {
  in_every_way(2, [](GpuRank& rank) {
    const hvd_dtype half = HVD_FLOAT16;
    auto x = rank.tensor<float>({2049, 1, 1, 5}), y = rank.tensor<float>({0, 7, 7});
    GpuRequest shared(HVD_ALLREDUCE, "shared");  // the output of the first is in the second
    shared.add(rank, x.data(), y.data(), HVD_FLOAT32, {3});
    shared.add(rank, y.data() + 1, y.data() + 1, HVD_FLOAT32, {2});
    shared.request.sent_as = &half;
    EXPECT_EQ(rank.finish(rank.submit(shared.request)), "");
    EXPECT_THAT(y.read(), ElementsAre(4096, 14, 14));
    auto z = rank.tensor<uint16_t>({0x6800, 0x3c00, 0x3c00, 0x4500});  // the same as float16
    GpuRequest mixed(HVD_ALLREDUCE, "mixed");
    if (rank.rank() == 0) {
      mixed.add(rank, x.data(), x.data(), HVD_FLOAT32, {4});
      mixed.request.sent_as = &half;
    } else {
      mixed.add(rank, z.data(), z.data(), HVD_FLOAT16, {4});
    }
    EXPECT_EQ(rank.finish(rank.submit(mixed.request)), "");
    EXPECT_THAT(x.read(),
                rank.rank() == 0 ? ElementsAre(4096, 2, 2, 10) : ElementsAre(2049, 1, 1, 5));
    z.read();
  });
}

TEST_F(Gpus, OnlyFloat32IsSentAsAnotherType) {
  gpu_job(1, test::with(GpuOperationsChoice::nccl), [](GpuRank& rank) {
    const hvd_dtype half = HVD_FLOAT16, whole = HVD_INT32;
    auto x = rank.tensor<double>({1});
    for (const auto& [dtype, sent] : {std::pair{HVD_FLOAT64, &half}, {HVD_FLOAT32, &whole}}) {
      GpuRequest request(HVD_ALLREDUCE, "x");
      request.add(rank, x.data(), x.data(), dtype, {1});
      request.request.sent_as = sent;
      EXPECT_THAT(device::test::error_of([&] { rank.submit(request.request); }),
                  ::testing::HasSubstr("only an allreduce of float32 tensors in device memory"));
    }
    rank.framework().finish();
  });
}

/// Rows of two, row r of a tensor is {r, r + rank}.
std::vector<float> rows_of_two(int rows, float rank) {
  std::vector<float> made;
  for (int row = 0; row < rows; ++row) {
    made.push_back(static_cast<float>(row));
    made.push_back(static_cast<float>(row) + rank);
  }
  return made;
}

TEST_F(Gpus, AReducescatterGivesEachRankItsRows) {
  in_every_way(3, [](GpuRank& rank) {
    const std::vector<std::pair<int, int>> parts[2] = {{{0, 2}, {2, 2}, {4, 2}},
                                                       {{0, 3}, {3, 2}, {5, 2}}};
    const int rows[2] = {6, 7};
    auto x = rank.tensor<float>(rows_of_two(6, number_of(rank)));
    auto y = rank.tensor<float>(rows_of_two(7, number_of(rank)));
    auto to_x = rank.tensor<float>(std::vector<float>(4)),
         to_y = rank.tensor<float>(std::vector<float>(6));
    GpuRequest request(HVD_REDUCESCATTER, "x");
    request.request.operation.op = HVD_AVERAGE;
    request.add(rank, x.data(), to_x.data(), HVD_FLOAT32, {rows[0], 2});
    request.add(rank, y.data(), to_y.data(), HVD_FLOAT32, {rows[1], 2});
    EXPECT_EQ(rank.finish(rank.submit(request.request)), "");
    const auto mine = static_cast<size_t>(rank.rank());
    for (int i = 0; i < 2; ++i) {
      const auto [first, count] = parts[i][mine];
      const auto all = rows_of_two(rows[i], 1.0f);  // the mean of the ranks is 1
      const auto read = (i == 0 ? to_x : to_y).read();
      const std::vector<float> expected(all.begin() + 2 * first, all.begin() + 2 * (first + count));
      EXPECT_THAT(std::vector<float>(read.begin(), read.begin() + 2 * count),
                  ElementsAreArray(expected));
    }
  });
}

/// Outputs that are allocated when their shapes are known.
struct Outputs {
  explicit Outputs(GpuRank& rank_) : rank(rank_) {}

  static const char* allocate(void* owner, int32_t index, const int64_t* shape, int32_t dimensions,
                              hvd_tensor* output) {
    auto& self = *static_cast<Outputs*>(owner);
    if (self.failure != nullptr) return self.failure;
    const auto count = std::accumulate(shape, shape + dimensions, int64_t{1}, std::multiplies<>());
    const device::ContextScope current(self.rank.context());
    self.memory.resize(std::max(self.memory.size(), static_cast<size_t>(index) + 1));
    auto& made = self.memory[static_cast<size_t>(index)];
    made = std::make_unique<device::DeviceMemory>(self.rank.context(),
                                                  std::max<int64_t>(count, 1) * sizeof(float));
    // The framework uses the memory before it gives it away.
    void* const data = device::test::pointer(made->address());
    self.rank.framework().queue("before", {{data, made->size(), true}}, [] {});
    output->data = data;
    output->stream = self.rank.framework().stream();
    return nullptr;
  }
  void give_to(GpuRequest& request) {
    request.request.allocate = &allocate;
    request.request.owner = this;
    request.request.outputs = nullptr;
  }
  std::vector<float> read(size_t index, size_t count) {
    return rank.read(static_cast<const float*>(device::test::pointer(memory[index]->address())),
                     count);
  }

  GpuRank& rank;
  const char* failure = nullptr;
  std::vector<std::unique_ptr<device::DeviceMemory>> memory;
};

TEST_F(Gpus, AnAllgatherAllocatesWhatTheRanksBring) {
  in_every_way(3, [](GpuRank& rank) {
    for (const bool equal : {true, false}) {
      const int rows = equal ? 2 : rank.rank();
      auto x =
          rank.tensor<float>(std::vector<float>(static_cast<size_t>(rows) * 2, number_of(rank)));
      auto y = rank.tensor<float>(std::vector<float>(3, number_of(rank) + 10));
      Outputs of_one(rank), of_two(rank);
      GpuRequest one(HVD_ALLGATHER, "one"), two(HVD_ALLGATHER, "two");
      one.add(rank, x.data(), x.data(), HVD_FLOAT32, {rows, 2});
      two.add(rank, x.data(), x.data(), HVD_FLOAT32, {rows, 2});
      two.add(rank, y.data(), y.data(), HVD_FLOAT32, {1, 3});
      of_one.give_to(one);
      of_two.give_to(two);
      const auto a = rank.submit(one.request), b = rank.submit(two.request);
      EXPECT_EQ(rank.finish(rank.rank() == 0 ? a : b), "");  // waits in another order
      EXPECT_EQ(rank.finish(rank.rank() == 0 ? b : a), "");
      const std::vector<float> expected =
          equal ? std::vector<float>{0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2}
                : std::vector<float>{1, 1, 2, 2, 2, 2};
      EXPECT_THAT(of_one.read(0, expected.size()), ElementsAreArray(expected));
      EXPECT_THAT(of_two.read(0, expected.size()), ElementsAreArray(expected));
      EXPECT_THAT(of_two.read(1, 9), ElementsAre(10, 10, 10, 11, 11, 11, 12, 12, 12));
      EXPECT_EQ(a->outputs[0].gathered.shape[0], equal ? 6 : 3);
      device::test::await([&] {
        return (!a->result || a->result->reached()) && (!b->result || b->result->reached());
      });
    }
  });
}

TEST_F(Gpus, AnAlltoallMovesUnequalParts) {
  in_every_way(3, [](GpuRank& rank) {
    // Rank r sends i rows to rank i.
    const std::vector<int32_t> splits{0, 1, 2};
    auto x = rank.tensor<float>({number_of(rank), number_of(rank) + 10, number_of(rank) + 20});
    Outputs outputs(rank);
    GpuRequest request(HVD_ALLTOALL, "x");
    request.add(rank, x.data(), x.data(), HVD_FLOAT32, {3, 1});
    request.request.splits = splits.data();
    request.request.split_count = 3;
    outputs.give_to(request);
    const auto done = rank.submit(request.request);
    EXPECT_EQ(rank.finish(done), "");
    const std::vector<float> expected[] = {{}, {0, 1, 2}, {10, 20, 11, 21, 12, 22}};
    const auto& mine = expected[rank.rank()];
    EXPECT_THAT(outputs.read(0, mine.size()), ElementsAreArray(mine));
    const auto* received =
        reinterpret_cast<const int32_t*>(done->outputs[1].gathered.memory.data());
    EXPECT_THAT(std::vector<int32_t>(received, received + 3), Each(rank.rank()));
    device::test::await([&] { return !done->result || done->result->reached(); });
  });
}

TEST_F(Gpus, AnErrorSaysWhyAnOutputCouldNotBeAllocated) {
  gpu_job(1, test::with(GpuOperationsChoice::nccl), [](GpuRank& rank) {
    auto x = rank.tensor<float>({1, 2});
    Outputs outputs(rank);
    outputs.failure = "out of memory: 3 of 80 GiB are free";
    GpuRequest request(HVD_ALLGATHER, "x");
    request.add(rank, x.data(), x.data(), HVD_FLOAT32, {2});
    outputs.give_to(request);
    EXPECT_THAT(rank.finish(rank.submit(request.request)),
                ::testing::HasSubstr("allgather \"x\": output 0 of shape [2] could not be "
                                     "allocated: out of memory: 3 of 80 GiB are free"));
    rank.framework().finish();
  });
}

TEST_F(Gpus, OutputsThatShareMemoryAreStoredInTheOrderOfTheTensors) {
  in_every_way(2, [](GpuRank& rank) {
    auto x = rank.tensor<float>({1, 2, 3, 4}), y = rank.tensor<float>({10, 20, 30});
    // The output of the first is the input of the second and part of the output of the second.
    GpuRequest request(HVD_ALLREDUCE, "x");
    request.add(rank, x.data(), y.data(), HVD_FLOAT32, {3});
    request.add(rank, y.data() + 1, y.data() + 1, HVD_FLOAT32, {2});
    EXPECT_EQ(rank.finish(rank.submit(request.request)), "");
    EXPECT_THAT(y.read(), ElementsAre(2, 40, 60));
    GpuRequest shifted(HVD_ALLREDUCE, "shifted");  // overlaps its own input
    shifted.add(rank, x.data(), x.data() + 1, HVD_FLOAT32, {3});
    EXPECT_EQ(rank.finish(rank.submit(shifted.request)), "");
    EXPECT_THAT(x.read(), ElementsAre(1, 2, 4, 6));
  });
}

TEST_F(Gpus, EmptyTensorsAreNoWork) {
  in_every_way(2, [](GpuRank& rank) {
    auto x = rank.tensor<float>({1});
    GpuRequest request(HVD_ALLREDUCE, "x");
    request.add(rank, x.data(), x.data(), HVD_FLOAT32, {0, 3});
    EXPECT_EQ(rank.finish(rank.submit(request.request)), "");
    rank.framework().finish();
  });
}

TEST_F(Gpus, ManyTensorsAreFusedAndMayBeSubmittedAgainAtOnce) {
  in_every_way(2, [](GpuRank& rank) {
    constexpr size_t kTensors = 40;
    std::deque<GpuRank::Tensor<float>> tensors;
    for (size_t i = 0; i < kTensors; ++i)
      tensors.emplace_back(rank, std::vector<float>(i + 1, 1.0f));
    for (int round = 1; round <= 3; ++round) {
      std::vector<std::shared_ptr<Completion>> all;
      for (size_t i = 0; i < kTensors; ++i) {
        const std::string name = std::to_string(i);
        GpuRequest request(HVD_ALLREDUCE, name.c_str());
        request.add(rank, tensors[i].data(), tensors[i].data(), HVD_FLOAT32,
                    {static_cast<int64_t>(i + 1)});
        all.push_back(rank.submit(request.request));
      }
      for (const auto& one : all) EXPECT_EQ(rank.finish(one), "");
    }
    for (const auto& tensor : tensors) EXPECT_THAT(tensor.read(), Each(8.0f));
  });
}

}  // namespace
}  // namespace hvd
