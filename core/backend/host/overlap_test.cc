// Which outputs of a batch overlap other memory of the batch.
#include "core/backend/host/overlap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "core/backend/host/batch_memory.h"
#include "core/sim/seeds.h"

namespace hvd {
namespace {

using Found = std::vector<size_t>;

/// Never read or written; only addresses within it are used.
std::byte* memory() {
  static std::byte bytes[4096];
  return bytes;
}

BatchTensor bytes_at(size_t input, size_t output, int64_t count) {
  return {.input = memory() + input, .output = memory() + output, .shape = {count}};
}
BatchTensor in_place(size_t at, int64_t count) { return bytes_at(at, at, count); }

Found find(const Batch& batch, int rank = 0, int size = 2) {
  return OverlapSearch().find(batch, rank, size);
}
Found find_in(std::vector<BatchTensor> tensors) { return find({.tensors = std::move(tensors)}); }

TEST(OverlapSearch, FindsNothingInTensorsThatLieApart) {
  EXPECT_EQ(find_in({in_place(0, 10)}), Found());
  EXPECT_EQ(find_in({in_place(10, 10), in_place(0, 10), in_place(20, 10)}), Found());
  EXPECT_EQ(find_in({bytes_at(0, 10, 10), bytes_at(30, 20, 10)}), Found());
}

TEST(OverlapSearch, FindsEveryOutputThatSharesAByte) {
  EXPECT_EQ(find_in({in_place(0, 10), in_place(0, 10)}), (Found{0, 1}));
  EXPECT_EQ(find_in({in_place(40, 9), in_place(0, 10), in_place(9, 10)}), (Found{1, 2}));
  EXPECT_EQ(find_in({in_place(0, 100), in_place(20, 10), in_place(90, 20), in_place(110, 1)}),
            (Found{0, 1, 2}));
}

TEST(OverlapSearch, LeavesInputsThatOnlyShareWithInputs) {
  EXPECT_EQ(find_in({bytes_at(0, 20, 10), bytes_at(0, 30, 10), bytes_at(5, 40, 10)}), Found());
}

TEST(OverlapSearch, FindsAnOutputOverTheInputOfAnother) {
  EXPECT_EQ(find_in({bytes_at(0, 20, 10), bytes_at(40, 5, 10)}), (Found{1}));
  EXPECT_EQ(find_in({bytes_at(0, 10, 10), bytes_at(10, 0, 10)}), (Found{0, 1}));
}

TEST(OverlapSearch, FindsAnOutputOverAPartOfItsOwnInput) {
  EXPECT_EQ(find_in({bytes_at(0, 5, 10)}), (Found{0}));
  EXPECT_EQ(find_in({bytes_at(5, 0, 10)}), (Found{0}));
}

TEST(OverlapSearch, LeavesOutTensorsWithoutBytesOrMemory) {
  EXPECT_EQ(find_in({in_place(0, 10), in_place(5, 0), {.shape = {10}}}), Found());
  EXPECT_EQ(find_in({{.shape = {10}}, {.shape = {10}}}), Found());
}

TEST(OverlapSearch, KnowsThatOnlyTheRootOfABroadcastReads) {
  const Batch batch{.operation = {.kind = OperationKind::broadcast, .root = 1},
                    .tensors = {bytes_at(0, 20, 10), bytes_at(40, 0, 10)}};
  EXPECT_EQ(find(batch, 0), Found());
  EXPECT_EQ(find(batch, 1), (Found{1}));
}

TEST(OverlapSearch, KnowsThatTheRootOfABroadcastInPlaceWritesNothing) {
  const Batch batch{.operation = {.kind = OperationKind::broadcast, .root = 1},
                    .tensors = {in_place(0, 10), in_place(5, 10)}};
  EXPECT_EQ(find(batch, 0), (Found{0, 1}));
  EXPECT_EQ(find(batch, 1), Found());
}

TEST(OverlapSearch, KnowsHowLargeOutputsAre) {
  const Batch gather{.operation = {.kind = OperationKind::allgather},
                     .tensors = {bytes_at(0, 10, 10)}};
  EXPECT_EQ(find(gather), Found());
  const Batch into{.operation = {.kind = OperationKind::allgather},
                   .tensors = {bytes_at(29, 10, 10)}};
  EXPECT_EQ(find(into), (Found{0}));
  const Batch scatter{.operation = {.kind = OperationKind::reducescatter},
                      .tensors = {bytes_at(10, 0, 3), bytes_at(20, 2, 3)}};
  EXPECT_EQ(find(scatter, 0), Found());  // two rows; a third would overlap
  EXPECT_EQ(
      find({.operation = {.kind = OperationKind::reducescatter}, .tensors = {in_place(0, 2)}}),
      (Found{0}));
  EXPECT_EQ(find({.operation = {.kind = OperationKind::alltoall}, .tensors = {in_place(0, 2)}}),
            (Found{0}));
}

/// Rows that differ between ranks: the output is not as large as the own rows suggest.
TEST(OverlapSearch, TakesTheSizesOfOutputsIfTheyAreGiven) {
  const Batch gather{.operation = {.kind = OperationKind::allgather},
                     .tensors = {bytes_at(11, 0, 10), bytes_at(50, 30, 1)}};
  const auto find_with = [&](const std::vector<size_t>& bytes) {
    return OverlapSearch().find(gather, 0, bytes);
  };
  EXPECT_EQ(find(gather), (Found{0})) << "20 bytes, if all ranks had as many rows";
  EXPECT_EQ(find_with({11, 20}), Found());
  EXPECT_EQ(find_with({12, 20}), (Found{0}));
  EXPECT_EQ(find_with({11, 21}), (Found{1}));
}

/// Compares every pair.
Found plainly(const Batch& batch) {
  Found found;
  const auto meets = [](const std::byte* a, size_t a_bytes, const std::byte* b, size_t b_bytes) {
    return std::less<>()(a, b + b_bytes) && std::less<>()(b, a + a_bytes) && a_bytes * b_bytes > 0;
  };
  for (size_t i = 0; i < batch.tensors.size(); ++i) {
    const BatchTensor& one = batch.tensors[i];
    const size_t bytes = tensor_bytes(one, batch.operation.dtype);
    bool overlaps = one.input != one.output && meets(one.output, bytes, one.input, bytes);
    for (size_t j = 0; j < batch.tensors.size(); ++j) {
      const BatchTensor& other = batch.tensors[j];
      const size_t other_bytes = tensor_bytes(other, batch.operation.dtype);
      overlaps |= i != j && (meets(one.output, bytes, other.input, other_bytes) ||
                             meets(one.output, bytes, other.output, other_bytes));
    }
    if (overlaps) found.push_back(i);
  }
  return found;
}

// One search object for all batches: its state must not affect the results.
TEST(OverlapSearch, FindsWhatALookAtAllPairsFinds) {
  OverlapSearch search;
  for (const uint64_t seed : sim::seeds(3000)) {
    std::mt19937_64 random(seed);
    const auto below = [&](size_t limit) { return random() % limit; };
    Batch batch;
    const size_t tensors = 1 + below(12), room = 1 + below(400);
    for (size_t i = 0; i < tensors; ++i) {
      const size_t at = below(room), to = below(2) == 0 ? at : below(room);
      batch.tensors.push_back(bytes_at(at, to, static_cast<int64_t>(below(20))));
    }
    ASSERT_EQ(search.find(batch, 0, 2), plainly(batch)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace hvd
