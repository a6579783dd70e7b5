// Segments of staged batches: they are run here on bytes, without a GPU or a host backend.
#include "core/backend/nccl/segments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/backend/host/batch_memory.h"

namespace hvd::nccl {
namespace {

using ::testing::Each;
using ::testing::ElementsAreArray;
using ::testing::SizeIs;

using Values = std::vector<int32_t>;
using Bytes = std::vector<std::byte>;

/// The tensors of a rank. The memory on the "GPU" is that of the test.
struct Rank {
  std::vector<Values> inputs{}, outputs{};
  Batch batch{};
  std::vector<Segment> segments{};
  Bytes pinned{};
};

std::byte* bytes_of(Values& values) { return reinterpret_cast<std::byte*>(values.data()); }
std::byte* bytes_at(device::DevicePointer address) { return reinterpret_cast<std::byte*>(address); }

class World {
 public:
  World(OperationKind kind, int ranks, size_t segment_bytes)
      : kind_(kind), segment_bytes_(segment_bytes), ranks_(static_cast<size_t>(ranks)) {}

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
  /// `rank` has joined: it has no memory for `tensor`.
  void drop(size_t index, size_t tensor) {
    ranks_[index].batch.tensors[tensor].input = nullptr;
    ranks_[index].batch.tensors[tensor].output = nullptr;
  }

  void run(const std::vector<int64_t>& rows = {}) {
    const int size = static_cast<int>(ranks_.size());
    for (int i = 0; i < size; ++i) {
      SegmentFacts facts{.rank = i, .size = size, .segment_bytes = segment_bytes_};
      if (!rows.empty()) facts.rows = RowCounts(kind_, size, rows);
      ranks_[static_cast<size_t>(i)].segments =
          segments_of(ranks_[static_cast<size_t>(i)].batch, facts);
    }
    for (size_t i = 0; i < ranks_[0].segments.size(); ++i) run_one(i);
  }

 private:
  void run_one(size_t index) {
    for (Rank& rank : ranks_) {
      ASSERT_EQ(rank.segments.size(), ranks_[0].segments.size());
      const Segment& segment = rank.segments[index];
      EXPECT_LE(segment.pinned_bytes, segment_bytes_);
      EXPECT_EQ(segment.has_unequal_parts, ranks_[0].segments[index].has_unequal_parts);
      rank.pinned.assign(segment.pinned_bytes, std::byte{77});
      for (const auto& piece : segment.downloads)
        std::memcpy(&rank.pinned.at(piece.pinned), bytes_at(piece.on_gpu), piece.bytes);
      for (const auto& piece : segment.neutral)
        std::memset(&rank.pinned.at(piece.pinned), 0, piece.bytes);
    }
    move(index);
    for (Rank& rank : ranks_)
      for (const auto& piece : rank.segments[index].uploads)
        std::memcpy(bytes_at(piece.on_gpu), &rank.pinned.at(piece.pinned), piece.bytes);
  }

  const Segment::Tensor& tensor(const Rank& rank, size_t index) const {
    EXPECT_THAT(rank.segments[index].tensors, SizeIs(1));
    return rank.segments[index].tensors[0];
  }
  Bytes input(const Rank& rank, size_t index) const {
    const Segment& segment = rank.segments[index];
    const auto& described = tensor(rank, index);
    const size_t bytes = static_cast<size_t>(described.shape[0]) * element_bytes(segment.dtype);
    if (described.is_absent) return Bytes(bytes);
    const std::byte* const begin = rank.pinned.data() + described.input;
    EXPECT_LE(described.input + bytes, rank.pinned.size());
    return {begin, begin + bytes};
  }
  void store(Rank& rank, size_t index, const std::byte* bytes, size_t count) const {
    const auto& described = tensor(rank, index);
    EXPECT_EQ(described.output_bytes, count);
    if (described.is_absent) return;
    ASSERT_LE(described.output + count, rank.pinned.size());
    std::copy_n(bytes, count, rank.pinned.data() + described.output);
  }

  /// What the host backend does.
  void move(size_t index) {
    std::vector<Bytes> inputs;
    for (const Rank& rank : ranks_) inputs.push_back(input(rank, index));
    if (hvd::reduces(kind_)) {
      Values sum(inputs[0].size() / sizeof(int32_t));
      for (const Bytes& one : inputs) {
        ASSERT_EQ(one.size(), inputs[0].size());
        for (size_t i = 0; i < sum.size(); ++i)
          sum[i] += reinterpret_cast<const int32_t*>(one.data())[i];
      }
      const bool scatters = kind_ == OperationKind::reducescatter;
      const size_t part = inputs[0].size() / (scatters ? ranks_.size() : 1);
      for (size_t i = 0; i < ranks_.size(); ++i)
        store(ranks_[i], index, bytes_of(sum) + (scatters ? i * part : 0), part);
    } else if (kind_ == OperationKind::broadcast) {
      for (Rank& rank : ranks_) store(rank, index, inputs[1].data(), inputs[1].size());
    } else {
      exchange(index, inputs);
    }
  }
  void exchange(size_t index, const std::vector<Bytes>& inputs) {
    for (size_t to = 0; to < ranks_.size(); ++to) {
      Bytes received;
      for (size_t from = 0; from < ranks_.size(); ++from) {
        auto begin = inputs[from].begin();
        auto end = inputs[from].end();
        if (kind_ == OperationKind::alltoall) {
          const auto& splits = tensor(ranks_[from], index).splits;
          begin += std::accumulate(splits.begin(), splits.begin() + static_cast<ptrdiff_t>(to), 0);
          end = begin + splits[to];
        }
        received.insert(received.end(), begin, end);
      }
      store(ranks_[to], index, received.data(), received.size());
    }
  }

  const OperationKind kind_;
  const size_t segment_bytes_;
  std::vector<Rank> ranks_;
};

Values sum_of(const Values& a, const Values& b) {
  Values sum = a;
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += b[i];
  return sum;
}

TEST(Segments, AnAllreduceIsCutRegardlessOfItsTensors) {
  for (const size_t segment : {64, 256, 4096}) {
    World world(OperationKind::allreduce, 2, segment);
    for (const size_t rank : {0, 1})
      for (const int64_t length : {5, 100, 1, 0, 39})
        world.add(rank, static_cast<size_t>(length), static_cast<size_t>(length), {length});
    world.run();
    EXPECT_THAT(world.rank(0).segments, SizeIs((145 * 4 + segment - 1) / segment));
    for (size_t i = 0; i < 5; ++i) {
      const Values sum = sum_of(world.rank(0).inputs[i], world.rank(1).inputs[i]);
      EXPECT_EQ(world.rank(0).outputs[i], sum);
      EXPECT_EQ(world.rank(1).outputs[i], sum);
    }
  }
}

TEST(Segments, ARankThatHasJoinedNeedsNoMemory) {
  World world(OperationKind::allreduce, 2, 128);
  for (const size_t rank : {0, 1})
    for (const int64_t length : {40, 50})
      world.add(rank, static_cast<size_t>(length), static_cast<size_t>(length), {length});
  world.drop(1, 0);
  world.run();
  EXPECT_EQ(world.rank(1).segments[0].pinned_bytes, 0u);
  EXPECT_TRUE(world.rank(1).segments[0].tensors[0].is_absent);
  EXPECT_THAT(world.rank(1).segments[1].neutral, SizeIs(1)) << "before the second tensor";
  EXPECT_EQ(world.rank(0).outputs[0], world.rank(0).inputs[0]);
  EXPECT_EQ(world.rank(0).outputs[1], sum_of(world.rank(0).inputs[1], world.rank(1).inputs[1]));
  EXPECT_EQ(world.rank(1).outputs[1], world.rank(0).outputs[1]);
  EXPECT_THAT(world.rank(1).outputs[0], Each(-1));
}

TEST(Segments, OnlyTheRootOfABroadcastReads) {
  World world(OperationKind::broadcast, 3, 192);
  for (const size_t rank : {0, 1, 2}) {
    world.add(rank, 70, 70, {70});
    world.add(rank, 9, 9, {9});
  }
  world.run();
  for (const size_t rank : {0, 1, 2}) {
    EXPECT_EQ(world.rank(rank).outputs, world.rank(1).inputs);
    EXPECT_EQ(world.rank(rank).segments[0].downloads.empty(), rank != 1);
  }
  Batch& in_place = world.rank(1).batch;
  for (BatchTensor& tensor : in_place.tensors) tensor.output = const_cast<std::byte*>(tensor.input);
  world.run();
  EXPECT_TRUE(world.rank(1).segments[0].uploads.empty()) << "the root has the values";
}

TEST(Segments, AReducescatterCutsTheRowsOfEachRank) {
  World world(OperationKind::reducescatter, 2, 3 * 64);
  for (const size_t rank : {0, 1}) {
    world.add(rank, 7 * 5, (rank == 0 ? 4 : 3) * 5, {7, 5});
    world.add(rank, 40, 20, {2, 20});
  }
  world.run();
  EXPECT_THAT(world.rank(0).segments, SizeIs(3)) << "160 bytes of each rank, in parts of 64";
  for (size_t i = 0; i < 2; ++i) {
    Values sum = sum_of(world.rank(0).inputs[i], world.rank(1).inputs[i]);
    const auto first = static_cast<ptrdiff_t>(world.rank(0).outputs[i].size());
    EXPECT_EQ(world.rank(0).outputs[i], Values(sum.begin(), sum.begin() + first));
    EXPECT_EQ(world.rank(1).outputs[i], Values(sum.begin() + first, sum.end()));
  }
}

TEST(Segments, AnAllgatherCutsTheRowsThatEachRankBrings) {
  const std::vector<int64_t> rows{3, 10, 0, 4, 70, 1};  // [rank, tensor]
  World world(OperationKind::allgather, 3, 4 * 64);
  for (size_t rank = 0; rank < 3; ++rank) {
    for (size_t i = 0; i < 2; ++i) {
      const int64_t own = rows[rank * 2 + i], row = i == 0 ? 1 : 3;
      const int64_t all = (rows[i] + rows[2 + i] + rows[4 + i]) * row;
      world.add(rank, static_cast<size_t>(own * row), static_cast<size_t>(all), {own, row});
    }
  }
  world.run(rows);
  EXPECT_THAT(world.rank(0).segments, SizeIs(5)) << "73 elements of rank 2, in parts of 16";
  for (size_t i = 0; i < 2; ++i) {
    Values all;
    for (size_t rank = 0; rank < 3; ++rank) {
      const Values& own = world.rank(rank).inputs[i];
      all.insert(all.end(), own.begin(), own.end());
    }
    for (size_t rank = 0; rank < 3; ++rank) EXPECT_EQ(world.rank(rank).outputs[i], all);
  }
}

TEST(Segments, AnAlltoallCutsWhatEachPairExchanges) {
  for (const bool equal : {true, false}) {
    const std::vector<int64_t> rows = equal ? std::vector<int64_t>{20, 20, 20, 20}
                                            : std::vector<int64_t>{0, 33, 2, 16};  // [from, to]
    World world(OperationKind::alltoall, 2, 4 * 64);
    for (size_t rank = 0; rank < 2; ++rank) {
      const int64_t in = rows[2 * rank] + rows[2 * rank + 1], out = rows[rank] + rows[2 + rank];
      world.add(rank, static_cast<size_t>(in), static_cast<size_t>(out), {in});
    }
    world.run(rows);
    EXPECT_EQ(world.rank(0).segments[0].has_unequal_parts, !equal);
    for (size_t rank = 0; rank < 2; ++rank) {
      Values expected;
      for (size_t from = 0; from < 2; ++from) {
        const Values& all = world.rank(from).inputs[0];
        const auto begin = all.begin() + (rank == 0 ? 0 : rows[2 * from]);
        expected.insert(expected.end(), begin, begin + rows[2 * from + rank]);
      }
      EXPECT_THAT(world.rank(rank).outputs[0], ElementsAreArray(expected));
    }
  }
}

TEST(Segments, AdasumKeepsTensorsWhole) {
  World world(OperationKind::allreduce, 1, 256);
  for (const int64_t length : {20, 20, 100, 0, 1})
    world.add(0, static_cast<size_t>(length), static_cast<size_t>(length), {length});
  Batch& batch = world.rank(0).batch;
  batch.operation.op = ReduceOp::adasum;
  const auto segments = segments_of(batch, {.segment_bytes = 256});
  ASSERT_THAT(segments, SizeIs(3));
  EXPECT_THAT(segments[0].tensors, SizeIs(2));
  EXPECT_EQ(segments[1].tensors[0].shape, Shape{100}) << "larger than a segment";
  EXPECT_THAT(segments[2].tensors, SizeIs(1));
}

TEST(Segments, TheirNumberIsLimitedAndEveryRangeIsAligned) {
  Batch batch{.operation = {.kind = OperationKind::allreduce, .dtype = DType::float32}};
  const int64_t elements = 1'000'003;
  batch.tensors.push_back({.input = bytes_at(4096), .output = bytes_at(4096), .shape = {elements}});
  const auto segments = segments_of(batch, {.segment_bytes = 64});
  EXPECT_LE(segments.size(), kMostSegments);
  EXPECT_GT(segments.size(), kMostSegments / 2);
  size_t at = 4096;
  for (const Segment& segment : segments) {
    ASSERT_THAT(segment.downloads, SizeIs(1));
    EXPECT_EQ(segment.downloads[0].on_gpu, at);
    EXPECT_EQ(at % 64, 0u);
    at += segment.downloads[0].bytes;
  }
  EXPECT_EQ(at, 4096 + static_cast<size_t>(elements) * sizeof(float));
}

}  // namespace
}  // namespace hvd::nccl
