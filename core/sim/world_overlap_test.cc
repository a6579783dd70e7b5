// Separate operations on shared memory. The batches are not determined, so the operations are
// idempotent and their results do not depend on them.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "core/sim/seeds.h"
#include "core/sim/world.h"

namespace hvd::sim {
namespace {

struct Range {
  size_t begin = 0;
  size_t count = 0;
};

Request in_place(const std::string& name, std::vector<float>& memory, const Range& range,
                 ReduceOp op) {
  Request made = request(OperationKind::allreduce, name);
  made.signature.operation.dtype = DType::float32;
  made.signature.operation.op = op;
  made.signature.shapes = {{static_cast<int64_t>(range.count)}};
  auto* const data = reinterpret_cast<std::byte*>(memory.data() + range.begin);
  made.tensors = {{.input = data, .output = data, .shape = made.signature.shapes[0]}};
  return made;
}

/// The whole tensor twice, and parts of it.
std::vector<Range> draw_ranges(std::mt19937_64& random, size_t elements) {
  std::vector<Range> ranges = {{0, elements}, {0, elements}};
  for (int i = 0; i < 6; ++i) {
    const size_t begin = random() % elements;
    ranges.push_back({begin, 1 + random() % (elements - begin)});
  }
  return ranges;
}

/// Values for which sums and averages are exact.
std::vector<std::vector<float>> draw_memories(std::mt19937_64& random, int ranks, size_t elements) {
  std::vector<std::vector<float>> memories(static_cast<size_t>(ranks));
  for (auto& memory : memories)
    for (size_t i = 0; i < elements; ++i) memory.push_back(static_cast<float>(random() % 16));
  return memories;
}

std::vector<float> combined(const std::vector<std::vector<float>>& memories, ReduceOp op) {
  std::vector<float> result = memories[0];
  for (size_t rank = 1; rank < memories.size(); ++rank)
    for (size_t i = 0; i < result.size(); ++i)
      result[i] = op == ReduceOp::max ? std::max(result[i], memories[rank][i])
                                      : result[i] + memories[rank][i];
  if (op == ReduceOp::average)
    for (float& value : result) value /= static_cast<float>(memories.size());
  return result;
}

void expect_equal_results(uint64_t seed, ReduceOp op) {
  const std::vector<std::vector<int>> hosts = {{2}, {4}, {1, 1}, {2, 2}, {1, 1, 1, 1}};
  World world({.ranks_per_host = hosts[seed % hosts.size()],
               .seed = seed,
               .shared_memory = seed / 5 % 2 == 0});
  std::mt19937_64 random(seed);
  const size_t elements = 1 + random() % 3000;
  std::vector<std::vector<float>> memories = draw_memories(random, world.size(), elements);
  const std::vector<float> expected = combined(memories, op);
  const std::vector<Range> ranges = draw_ranges(random, elements);
  std::vector<std::shared_ptr<Completion>> operations;
  for (int rank = 0; rank < world.size(); ++rank)
    for (size_t i = 0; i < ranges.size(); ++i)
      operations.push_back(
          world.submit(rank, in_place(fmt::format("t{}", i), memories[rank], ranges[i], op)));
  const auto is_done = [](const auto& operation) { return operation->handle.done(); };
  ASSERT_TRUE(world.run_until([&] { return std::ranges::all_of(operations, is_done); }));
  for (const auto& operation : operations) ASSERT_EQ(operation->handle.outcome().code, Code::ok);
  for (const auto& memory : memories) ASSERT_EQ(memory, expected);
}

TEST(WorldOverlap, TheMaximumOfPartsOfOneMemoryIsThatOfEachElement) {
  for (const uint64_t seed : seeds(100)) {
    SCOPED_TRACE(seed);
    expect_equal_results(seed, ReduceOp::max);
  }
}

// Like entries of a state_dict() that share weights.
TEST(WorldOverlap, TheAverageOfPartsOfOneMemoryIsThatOfEachElement) {
  for (const uint64_t seed : seeds(100)) {
    SCOPED_TRACE(seed);
    expect_equal_results(seed, ReduceOp::average);
  }
}

}  // namespace
}  // namespace hvd::sim
