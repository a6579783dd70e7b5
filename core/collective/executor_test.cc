// The executor over the simulated network: results compared with one process that has all inputs,
// and its errors when a rank is lost or no rank can progress.
#include "core/collective/executor.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <numeric>
#include <random>

#include "core/collective/executor_testing.h"
#include "core/kernel/kernel.h"
#include "core/sim/network.h"
#include "core/sim/seeds.h"

namespace hvd {
namespace {

struct Case {
  Make make = nullptr;
  int size = 1;
  size_t elements = 0;
  DType dtype = DType::float32;
  ReduceOp op = ReduceOp::sum;
  bool in_place = true;
  double prescale = 1.0;
  double postscale = 1.0;
};

/// A batch on all ranks: their memory and their Work.
class RanksOfPass {
 public:
  RanksOfPass(const Case& c, uint64_t seed, size_t segment_bytes) : case_(c) {
    for (int rank = 0; rank < c.size; ++rank) {
      outputs_.emplace_back(c.elements, element_bytes(c.dtype), seed + rank);
      inputs_.emplace_back(c.elements, element_bytes(c.dtype), seed + 1000 + rank);
      contributions_.push_back(small_numbers(c.dtype, c.elements, seed * 100 + rank));
      (c.in_place ? outputs_ : inputs_).back().set(contributions_.back());
    }
    for (int rank = 0; rank < c.size; ++rank) works_.push_back(work(rank, segment_bytes));
  }

  std::vector<Work> take_works() { return std::move(works_); }
  ByteVector output(int rank) { return outputs_[rank].content(); }
  ByteVector input(int rank) { return inputs_[rank].content(); }
  const ByteVector& contribution(int rank) const { return contributions_[rank]; }

  ByteVector expected() const {
    auto scaled = contributions_;
    std::vector<const void*> sources;
    for (ByteVector& one : scaled) {
      kernel::scale(case_.dtype, one.data(), one.data(), {.factor = case_.prescale},
                    case_.elements);
      sources.push_back(one.data());
    }
    ByteVector result(scaled[0].size());
    kernel::reduce(case_.op, case_.dtype, result.data(), sources, case_.elements,
                   {.scaling = {.factor = case_.postscale}});
    return result;
  }

 private:
  Work work(int rank, size_t segment_bytes) {
    Work work;
    work.batch = 5;
    work.output = outputs_[rank].list();
    work.input = (case_.in_place ? outputs_ : inputs_)[rank].list();
    work.plan = split_plan(case_.make(rank, case_.size), work.output.bytes(), segment_bytes,
                           element_bytes(case_.dtype));
    work.dtype = case_.dtype;
    work.op = case_.op;
    work.prescale = case_.prescale;
    work.postscale = case_.postscale;
    return work;
  }

  Case case_;
  std::vector<Tensors> outputs_, inputs_;
  std::vector<ByteVector> contributions_;
  std::vector<Work> works_;
};

void expect_right(const Case& c, uint64_t seed) {
  SCOPED_TRACE(testing::Message() << c.size << " ranks, " << c.elements << " of "
                                  << name_of(c.dtype) << " " << name_of(c.op) << " in place "
                                  << c.in_place << " scaled " << c.prescale << " " << c.postscale
                                  << " seed " << seed);
  const auto options = network_of(seed);
  sim::Network network(c.size, seed, options);
  RanksOfPass batch(c, seed, options.unit_bytes);
  for (const auto& error : network.run(batch.take_works()))
    ASSERT_FALSE(error.has_value()) << error->what();
  const ByteVector expected = batch.expected();
  for (int rank = 0; rank < c.size; ++rank) {
    ASSERT_EQ(batch.output(rank), expected) << "rank " << rank;
    const ByteVector input = c.in_place ? batch.contribution(rank) : batch.input(rank);
    ASSERT_EQ(input, batch.contribution(rank)) << "the input of rank " << rank << " has changed";
  }
}

class ExecutorAllreduce : public testing::TestWithParam<Named> {};

TEST_P(ExecutorAllreduce, EqualsOneProcessThatHasAllInputs) {
  constexpr std::array kTypes = {DType::float32, DType::float16, DType::bfloat16, DType::int64,
                                 DType::uint8,   DType::float64, DType::int32,    DType::int8};
  constexpr std::array kOps = {ReduceOp::sum, ReduceOp::max, ReduceOp::min, ReduceOp::product};
  constexpr std::array<size_t, 7> kElements = {0, 1, 2, 31, 97, 500, 1300};
  uint64_t turn = 0;
  for (const uint64_t seed : sim::seeds(3))
    for (const int size : {1, 2, 3, 4, 5, 6, 7, 8, 16, 33})
      for (const size_t elements : kElements) {
        if (size > 8 && elements > 500) continue;
        ++turn;
        const ReduceOp op = kOps[turn / 3 % kOps.size()];
        const bool may_grow = op != ReduceOp::product;  // to infinity, and then times 0
        expect_right({.make = GetParam().make,
                      .size = size,
                      .elements = elements,
                      .dtype = kTypes[turn % kTypes.size()],
                      .op = op,
                      .in_place = turn % 5 < 3,
                      .prescale = turn % 4 == 1 && may_grow ? 2.0 : 1.0,
                      .postscale = turn % 3 == 1 ? 0.5 : 1.0},
                     seed + turn);
      }
}

TEST_P(ExecutorAllreduce, GivesTheSameBitsToAllRanksWhateverTheValues) {
  for (const DType dtype : {DType::float32, DType::float16, DType::bfloat16})
    for (const int size : {2, 3, 5, 8}) {
      const Case c{.make = GetParam().make,
                   .size = size,
                   .elements = 300,
                   .dtype = dtype,
                   .postscale = 1.0 / size};
      RanksOfPass batch(c, 7, 256);
      std::vector<Work> works = batch.take_works();
      std::mt19937_64 random(size);
      for (Work& work : works)
        work.output.for_each(0, work.output.bytes(), [&](MutableBytes piece, size_t) {
          for (size_t i = 0; i < piece.size(); ++i) {  // exponents near 1, any mantissa
            const bool top = (i + 1) % element_bytes(dtype) == 0;
            piece[i] = std::byte(top ? 0x3b + random() % 2 : random() % 256);
          }
        });
      sim::Network network(size, 3, {.unit_bytes = 256, .shared_memory = true});
      for (const auto& error : network.run(std::move(works))) ASSERT_FALSE(error.has_value());
      for (int rank = 1; rank < size; ++rank) ASSERT_EQ(batch.output(rank), batch.output(0));
    }
}

TEST_P(ExecutorAllreduce, EndsOnEveryRankWhenOneIsLost) {
  for (const uint64_t seed : sim::seeds(60)) {
    auto options = network_of(seed);
    const int size = 2 + static_cast<int>(seed % 6);
    options.lose_rank = static_cast<int>(seed / 7) % size;
    options.lose_after = seed % 150;
    sim::Network network(size, seed, options);
    RanksOfPass batch({.make = GetParam().make, .size = size, .elements = 2000}, seed,
                      options.unit_bytes);
    for (const auto& error : network.run(batch.take_works())) {
      ASSERT_TRUE(error.has_value()) << "seed " << seed;
      EXPECT_EQ(error->code(), Code::peer_lost);
      EXPECT_EQ(error->rank(), options.lose_rank);
    }
  }
}

TEST_P(ExecutorAllreduce, RunsAlikeFromTheSameSeed) {
  const auto fingerprint = [&](uint64_t seed) {
    sim::Network network(4, seed, {.unit_bytes = 256});
    RanksOfPass batch({.make = GetParam().make, .size = 4, .elements = 500}, 1, 256);
    network.run(batch.take_works());
    return network.fingerprint();
  };
  EXPECT_EQ(fingerprint(11), fingerprint(11));
  EXPECT_NE(fingerprint(11), fingerprint(12));
}

INSTANTIATE_TEST_SUITE_P(All, ExecutorAllreduce, testing::ValuesIn(kAllreduces),
                         [](const auto& info) { return info.param.name; });

TEST(Executor, DirectAndOneShotReduceInAscendingOrderOfRank) {
  for (const Make make : {direct_allreduce, one_shot_allreduce}) {
    constexpr int kSize = 4;
    const std::array<float, kSize> values = {1e8F, 1.0F, -1e8F,
                                             1.0F};  // in this order: 1, otherwise 2
    sim::Network network(kSize, 1, {.shared_memory = true});
    std::array<std::array<float, 9>, kSize> memory;
    std::vector<Work> works(kSize);
    for (int rank = 0; rank < kSize; ++rank) {
      memory[rank].fill(values[rank]);
      Work& work = works[rank];
      work.plan = split_plan(make(rank, kSize), sizeof(memory[rank]), 256, sizeof(float));
      work.output.add(reinterpret_cast<std::byte*>(memory[rank].data()), sizeof(memory[rank]));
      work.input = work.output;
      work.dtype = DType::float32;
    }
    network.run(std::move(works));
    for (const auto& result : memory)
      for (const float value : result) EXPECT_EQ(value, 1.0F);
  }
}

/// All ranks send all chunks to rank 0, which reduces them and sends them back in two parts.
Schedule through_rank_0(int rank, int size) {
  Schedule schedule{.chunks = 5, .phases = std::vector<Phase>(2), .room_chunks = 5};
  const ChunkRange all{0, 5}, head{0, 2}, tail{2, 3};
  for (int peer = 1; peer < size && rank == 0; ++peer) {
    schedule.phases[0].receives.push_back({peer, all, Merge::reduce});
    schedule.phases[1].sends.push_back({peer, head});
    schedule.phases[1].sends.push_back({peer, tail});
  }
  if (rank == 0) return schedule;
  schedule.phases[0].sends.push_back({0, all});
  schedule.phases[1].receives.push_back({0, tail, Merge::replace});
  schedule.phases[1].receives.push_back({0, head, Merge::replace});
  return schedule;
}

TEST(Executor, TakesRangesOfSeveralChunks) {
  for (const size_t elements : {1, 6, 500})
    for (const int size : {2, 3, 5})
      expect_right({.make = through_rank_0, .size = size, .elements = elements, .postscale = 0.5},
                   elements);
  // Blocks are not adjacent in the buffer, but adjacent in the unit.
  const std::vector<size_t> blocks = {40, 8, 0, 80, 120};
  std::vector<std::vector<float>> memory(3, std::vector<float>(62));
  std::vector<Work> works(3);
  for (int rank = 0; rank < 3; ++rank) {
    std::iota(memory[rank].begin(), memory[rank].end(), static_cast<float>(rank));
    works[rank].plan = blocks_plan(through_rank_0(rank, 3), blocks, 80, sizeof(float));
    works[rank].output.add(reinterpret_cast<std::byte*>(memory[rank].data()), 62 * sizeof(float));
    works[rank].input = works[rank].output;
    works[rank].dtype = DType::float32;
  }
  sim::Network network(3, 1, {.unit_bytes = 80});
  for (const auto& error : network.run(std::move(works))) ASSERT_FALSE(error.has_value());
  for (const auto& result : memory)
    for (size_t i = 0; i < result.size(); ++i)
      ASSERT_EQ(result[i], 3.0F * static_cast<float>(i) + 3.0F);
}

TEST(Executor, ScalesIntegersTwiceEachTimeTowardZero) {
  for (const bool in_place : {true, false})
    for (const int size : {1, 2}) {
      std::vector<std::vector<int32_t>> inputs(size, {7, -7, 9, 1}), outputs = inputs;
      std::vector<Work> works(size);
      for (int rank = 0; rank < size; ++rank) {
        auto& from = in_place ? outputs : inputs;
        works[rank].plan = split_plan(ring_allreduce(rank, size), 16, 64, 4);
        works[rank].input.add(reinterpret_cast<std::byte*>(from[rank].data()), 16);
        works[rank].output.add(reinterpret_cast<std::byte*>(outputs[rank].data()), 16);
        works[rank].dtype = DType::int32;
        works[rank].op = ReduceOp::max;
        works[rank].prescale = works[rank].postscale = 0.5;
      }
      sim::Network network(size, 1, {});
      run_all(network, std::move(works));
      for (const auto& output : outputs) EXPECT_EQ(output, (std::vector<int32_t>{1, -1, 2, 0}));
    }
}

TEST(Executor, ReducesMoreRanksThanTheKernelTakesInAscendingOrder) {
  constexpr int kSize = static_cast<int>(kernel::kMaxSources) + 700;
  // Small values are preserved only in this order: they are added to a large value that is
  // subtracted later.
  const auto value = [](int rank) {
    return rank == 2 ? 1e8F : rank == kSize - 2 ? -1e8F : rank % 3 == 0 ? 1.0F : 0.0F;
  };
  std::vector<std::array<float, 2000>> memory(kSize);
  std::vector<Work> works(kSize);
  float expected = 0.0F;
  for (int rank = 0; rank < kSize; ++rank) {
    expected += value(rank);
    memory[rank].fill(value(rank));
    works[rank].output.add(reinterpret_cast<std::byte*>(memory[rank].data()), sizeof(memory[rank]));
    works[rank].input = works[rank].output;
    works[rank].plan = split_plan(parameter_server_allreduce(rank, kSize), sizeof(memory[rank]),
                                  8192, sizeof(float));
    works[rank].dtype = DType::float32;
  }
  sim::Network network(kSize, 1, {.unit_bytes = 8192, .shared_memory = true});
  run_all(network, std::move(works));
  for (const float result : memory[0]) ASSERT_EQ(result, expected);
  EXPECT_EQ(memory[kSize - 1], memory[0]);
}

TEST(Executor, PassesOfOneBatchNumberTheirUnitsThrough) {
  sim::Network network(3, 4, {.unit_bytes = 64});
  uint32_t first_unit = 0;
  for (const Make make : {ring_allreduce, direct_allreduce, tree_allreduce}) {
    const Case c{.make = make, .size = 3, .elements = 100};
    RanksOfPass batch(c, first_unit, 64);
    std::vector<Work> works = batch.take_works();
    for (Work& work : works) work.first_unit = first_unit;
    const uint32_t units = Executor(network.group(0), works[0]).units();
    EXPECT_EQ(units, works[0].plan->layout.segments() * works[0].plan->schedule.phases.size());
    first_unit += units;
    run_all(network, std::move(works));
    for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(batch.output(rank), batch.expected());
  }
}

TEST(Executor, ADeadlockIsSeenAtOnceAndSaysWhoWaitsForWhat) {
  sim::Network network(3, 1, {.unit_bytes = 256});
  RanksOfPass batch({.make = ring_allreduce, .size = 3, .elements = 100}, 1, 256);
  std::vector<Work> works = batch.take_works();
  // Rank 1's schedule has no sends, so rank 2 waits for data from rank 1 and no rank can finish.
  Schedule silent = works[1].plan->schedule;
  for (Phase& phase : silent.phases) phase.sends.clear();
  works[1].plan = make_plan(std::move(silent), works[1].plan->layout);
  try {
    network.run(std::move(works));
    FAIL() << "expected an Error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::timed_out);
    EXPECT_NE(std::string(error.what())
                  .find("rank 2 waits for unit 0 (segment 0, phase 0) of batch 5 from rank 1"),
              std::string::npos)
        << error.what();
  }
}

TEST(Executor, ManyBatchesFollowEachOther) {
  sim::Network network(4, 9, {.unit_bytes = 128, .shared_memory = true});
  for (uint64_t number = 0; number < 20; ++number) {
    const Case c{
        .make = kAllreduces[number % kAllreduces.size()].make, .size = 4, .elements = number * 37};
    RanksOfPass batch(c, number, 128);
    std::vector<Work> works = batch.take_works();
    for (Work& work : works) work.batch = 10 + number;
    for (const auto& error : network.run(std::move(works))) ASSERT_FALSE(error.has_value());
    for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(batch.output(rank), batch.expected());
  }
}

}  // namespace
}  // namespace hvd
