// Rounds of batches that ranks read from each other: they are run here on bytes, without a GPU.
#include "core/backend/nccl/ipc_rounds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

namespace hvd::nccl {
namespace {

using ::testing::Each;
using ::testing::SizeIs;

using Values = std::vector<int32_t>;

std::byte* bytes_of(Values& values) { return reinterpret_cast<std::byte*>(values.data()); }
std::byte* bytes_at(device::DevicePointer address) { return reinterpret_cast<std::byte*>(address); }

/// The tensors of a rank. The memory on the "GPU" is that of the test.
struct Rank {
  std::vector<Values> inputs{}, outputs{};
  Batch batch{};
  std::vector<IpcRound> rounds{};
  std::vector<std::byte> place{};
};

class World {
 public:
  World(OperationKind kind, int ranks, size_t place_bytes, size_t reduced_by_all = 0)
      : kind_(kind),
        place_bytes_(place_bytes),
        reduced_by_all_(reduced_by_all),
        ranks_(static_cast<size_t>(ranks)) {}

  Rank& rank(size_t index) { return ranks_[index]; }
  /// Adds a tensor of distinct values. `outputs`: elements.
  void add(size_t index, size_t inputs, size_t outputs, Shape shape) {
    Rank& rank = ranks_[index];
    Values& made = rank.inputs.emplace_back(inputs);
    std::iota(made.begin(), made.end(),
              static_cast<int32_t>(1000 * index + 100 * rank.inputs.size()));
    rank.outputs.emplace_back(outputs, -1);
    rank.batch.operation = {.kind = kind_, .dtype = DType::int32, .root = 1};
    rank.batch.tensors.push_back({.input = bytes_of(rank.inputs.back()),
                                  .output = bytes_of(rank.outputs.back()),
                                  .shape = std::move(shape)});
  }
  void run(const std::vector<int64_t>& rows = {}) {
    const int size = static_cast<int>(ranks_.size());
    for (int i = 0; i < size; ++i) {
      IpcFacts facts{.rank = i,
                     .size = size,
                     .place_bytes = place_bytes_,
                     .reduced_by_all_bytes = reduced_by_all_};
      if (!rows.empty()) facts.rows = RowCounts(kind_, size, rows);
      Rank& rank = ranks_[static_cast<size_t>(i)];
      rank.rounds = ipc_rounds_of(rank.batch, facts);
    }
    for (size_t i = 0; i < ranks_[0].rounds.size(); ++i) run_one(i);
  }

 private:
  void run_one(size_t index) {
    for (Rank& rank : ranks_) {
      ASSERT_EQ(rank.rounds.size(), ranks_[0].rounds.size());
      EXPECT_EQ(rank.rounds[index].reads_reduced, ranks_[0].rounds[index].reads_reduced);
      rank.place.assign(place_bytes_, std::byte{77});
      for (const auto& piece : rank.rounds[index].packs) {
        EXPECT_LE(piece.offset + piece.bytes, place_bytes_);
        std::memcpy(&rank.place.at(piece.offset), bytes_at(piece.tensor), piece.bytes);
      }
      for (const auto& piece : rank.rounds[index].neutral)
        std::memset(&rank.place.at(piece.offset), 0, piece.bytes);
    }
    for (Rank& rank : ranks_)
      if (rank.rounds[index].reduction) reduce(rank, *rank.rounds[index].reduction);
    for (Rank& rank : ranks_)
      for (const auto& piece : rank.rounds[index].reads)
        std::memcpy(bytes_at(piece.tensor),
                    &ranks_[static_cast<size_t>(piece.rank)].place.at(piece.offset), piece.bytes);
  }
  void reduce(Rank& to, const IpcRound::Reduction& reduction) {
    EXPECT_EQ(reduction.to % 16, 0u);
    EXPECT_EQ(reduction.from % 16, 0u);
    EXPECT_LE(std::max(reduction.from, reduction.to) + reduction.bytes, place_bytes_);
    // Unsigned: what lies between the pieces is added too, and overflows.
    for (size_t at = 0; at < reduction.bytes; at += sizeof(uint32_t)) {
      uint32_t sum = 0;
      for (const Rank& from : ranks_) {
        uint32_t value = 0;
        std::memcpy(&value, &from.place.at(reduction.from + at), sizeof(value));
        sum += value;
      }
      std::memcpy(&to.place.at(reduction.to + at), &sum, sizeof(sum));
    }
  }

  const OperationKind kind_;
  const size_t place_bytes_, reduced_by_all_;
  std::vector<Rank> ranks_;
};

Values sum_of_inputs(World& world, size_t ranks, size_t tensor) {
  Values sum = world.rank(0).inputs[tensor];
  for (size_t rank = 1; rank < ranks; ++rank)
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += world.rank(rank).inputs[tensor][i];
  return sum;
}

TEST(IpcRounds, AnAllreduceIsReducedInSharesOrByAll) {
  for (const size_t ranks : {2, 3, 5}) {
    for (const size_t place : {640, 4096}) {
      for (const size_t reduced_by_all : {0, 1000}) {
        World world(OperationKind::allreduce, static_cast<int>(ranks), place, reduced_by_all);
        for (size_t rank = 0; rank < ranks; ++rank)
          for (const int64_t length : {5, 100, 1, 0, 39, 300})
            world.add(rank, static_cast<size_t>(length), static_cast<size_t>(length), {length});
        world.run();
        EXPECT_EQ(world.rank(0).rounds[0].reads_reduced, ranks > 2);
        for (size_t i = 0; i < 6; ++i)
          for (size_t rank = 0; rank < ranks; ++rank)
            EXPECT_EQ(world.rank(rank).outputs[i], sum_of_inputs(world, ranks, i));
      }
    }
  }
  World small(OperationKind::allreduce, 3, 4096, 2000);
  for (size_t rank = 0; rank < 3; ++rank) small.add(rank, 250, 250, {250});
  small.run();
  EXPECT_FALSE(small.rank(0).rounds[0].reads_reduced) << "each rank reduces all of it";
  EXPECT_EQ(small.rank(2).outputs[0], sum_of_inputs(small, 3, 0));
}

TEST(IpcRounds, ARankThatHasJoinedGivesNeutralElements) {
  World world(OperationKind::allreduce, 3, 640);
  for (const size_t rank : {0, 1, 2}) world.add(rank, 300, 300, {300});
  world.rank(1).batch.tensors[0].input = nullptr;
  world.rank(1).batch.tensors[0].output = nullptr;
  world.run();
  EXPECT_THAT(world.rank(1).rounds[0].neutral, SizeIs(1));
  EXPECT_THAT(world.rank(1).outputs[0], Each(-1));
  std::ranges::fill(world.rank(1).inputs[0], 0);
  EXPECT_EQ(world.rank(0).outputs[0], sum_of_inputs(world, 3, 0));
}

TEST(IpcRounds, ABroadcastIsReadFromTheRoot) {
  World world(OperationKind::broadcast, 3, 128);
  for (const size_t rank : {0, 1, 2}) {
    world.add(rank, 70, 70, {70});
    world.add(rank, 9, 9, {9});
  }
  world.run();
  for (const size_t rank : {0, 1, 2}) {
    EXPECT_EQ(world.rank(rank).outputs, world.rank(1).inputs);
    EXPECT_EQ(world.rank(rank).rounds[0].packs.empty(), rank != 1);
  }
  Batch& in_place = world.rank(1).batch;
  for (BatchTensor& tensor : in_place.tensors) tensor.output = const_cast<std::byte*>(tensor.input);
  world.run();
  EXPECT_TRUE(world.rank(1).rounds[0].reads.empty()) << "the root has the values";
}

TEST(IpcRounds, AReducescatterGivesEachRankItsRows) {
  World world(OperationKind::reducescatter, 2, 128);
  for (const size_t rank : {0, 1}) {
    world.add(rank, 7 * 5, (rank == 0 ? 4 : 3) * 5, {7, 5});
    world.add(rank, 40, 20, {2, 20});
  }
  world.run();
  for (size_t i = 0; i < 2; ++i) {
    const Values sum = sum_of_inputs(world, 2, i);
    const auto first = static_cast<ptrdiff_t>(world.rank(0).outputs[i].size());
    EXPECT_EQ(world.rank(0).outputs[i], Values(sum.begin(), sum.begin() + first));
    EXPECT_EQ(world.rank(1).outputs[i], Values(sum.begin() + first, sum.end()));
  }
}

TEST(IpcRounds, AnAllgatherReadsWhatEachRankBrings) {
  const std::vector<int64_t> rows{3, 10, 0, 4, 70, 1};  // [rank, tensor]
  World world(OperationKind::allgather, 3, 64);
  for (size_t rank = 0; rank < 3; ++rank) {
    for (size_t i = 0; i < 2; ++i) {
      const int64_t own = rows[rank * 2 + i], row = i == 0 ? 1 : 3;
      const int64_t all = (rows[i] + rows[2 + i] + rows[4 + i]) * row;
      world.add(rank, static_cast<size_t>(own * row), static_cast<size_t>(all), {own, row});
    }
  }
  world.run(rows);
  for (size_t i = 0; i < 2; ++i) {
    Values all;
    for (size_t rank = 0; rank < 3; ++rank) {
      const Values& own = world.rank(rank).inputs[i];
      all.insert(all.end(), own.begin(), own.end());
    }
    for (size_t rank = 0; rank < 3; ++rank) EXPECT_EQ(world.rank(rank).outputs[i], all);
  }
}

TEST(IpcRounds, AnAlltoallReadsWhatEachRankSends) {
  const std::vector<int64_t> rows{0, 33, 2, 16};  // [from, to]
  World world(OperationKind::alltoall, 2, 128);
  for (size_t rank = 0; rank < 2; ++rank) {
    const int64_t in = rows[2 * rank] + rows[2 * rank + 1], out = rows[rank] + rows[2 + rank];
    world.add(rank, static_cast<size_t>(in), static_cast<size_t>(out), {in});
  }
  world.run(rows);
  for (size_t rank = 0; rank < 2; ++rank) {
    Values expected;
    for (size_t from = 0; from < 2; ++from) {
      const Values& all = world.rank(from).inputs[0];
      const auto begin = all.begin() + (rank == 0 ? 0 : rows[2 * from]);
      expected.insert(expected.end(), begin, begin + rows[2 * from + rank]);
    }
    EXPECT_EQ(world.rank(rank).outputs[0], expected);
  }
}

TEST(IpcRounds, ABatchWithoutDataHasNone) {
  World world(OperationKind::allreduce, 2, 128);
  for (const size_t rank : {0, 1}) world.add(rank, 0, 0, {0, 3});
  world.run();
  EXPECT_THAT(world.rank(0).rounds, SizeIs(0));
}

}  // namespace
}  // namespace hvd::nccl
