// HOROVOD_DETERMINISTIC: whole jobs with sums that depend on the order of additions.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <random>

#include "core/kernel/reference.h"
#include "core/sim/seeds.h"
#include "core/sim/world.h"

namespace hvd::sim {
namespace {

constexpr int kRanks = 4;
constexpr std::array<size_t, 6> kElements = {1, 7, 333, 64, 5000, 2049};
constexpr std::array kTypes = {DType::float32, DType::float16, DType::bfloat16, DType::float64};
constexpr std::array kOps = {ReduceOp::sum, ReduceOp::average, ReduceOp::adasum};
constexpr size_t kTensors = kElements.size() * kTypes.size() * kOps.size();

size_t elements_of(size_t tensor) { return kElements[tensor % kElements.size()]; }
DType type_of(size_t tensor) { return kTypes[tensor / kElements.size() % kTypes.size()]; }
ReduceOp op_of(size_t tensor) { return kOps[tensor / kElements.size() / kTypes.size()]; }

/// Sums of these depend on the order of additions in every floating-point type.
ByteVector rounding_numbers(size_t tensor, int rank) {
  const DType dtype = type_of(tensor);
  std::mt19937_64 random(tensor * 16 + static_cast<uint64_t>(rank));
  ByteVector values(elements_of(tensor) * element_bytes(dtype));
  for (size_t i = 0; i < elements_of(tensor); ++i) {
    const double size = std::ldexp(1.0, static_cast<int>(random() % 12));
    const double value = (static_cast<double>(random() % 2000) - 1000.0) / 999.0 * size;
    kernel::reference::put_number(dtype, values.data(), i, value);
  }
  return values;
}

using Tensors = std::vector<std::vector<ByteVector>>;  // [rank, tensor]

Request reduction(size_t tensor, ByteVector& bytes) {
  Request made = request(OperationKind::allreduce, fmt::format("t{}", tensor));
  made.signature.operation.dtype = type_of(tensor);
  made.signature.operation.op = op_of(tensor);
  made.signature.shapes = {{static_cast<int64_t>(elements_of(tensor))}};
  made.tensors = {
      {.input = bytes.data(), .output = bytes.data(), .shape = made.signature.shapes[0]}};
  return made;
}

/// Returns all tensors after all ranks have submitted them, each rank in its own order.
Tensors reduced(const WorldOptions& options) {
  Tensors tensors(kRanks);
  World world(options);
  std::mt19937_64 random(options.seed);
  std::vector<std::shared_ptr<Completion>> operations;
  for (int rank = 0; rank < kRanks; ++rank) {
    for (size_t i = 0; i < kTensors; ++i) tensors[rank].push_back(rounding_numbers(i, rank));
  }
  std::vector<size_t> order(kTensors);
  std::iota(order.begin(), order.end(), size_t{0});
  for (int rank = 0; rank < kRanks; ++rank) {
    std::shuffle(order.begin(), order.end(), random);
    for (const size_t i : order) {
      operations.push_back(world.submit(rank, reduction(i, tensors[rank][i])));
      int steps = static_cast<int>(random() % 20);
      world.run_until([&] { return steps-- <= 0; });
    }
  }
  const auto done = [](const auto& operation) { return operation->handle.done(); };
  if (!world.run_until([&] { return std::ranges::all_of(operations, done); })) {
    ADD_FAILURE() << "nothing moves, seed " << options.seed;
    return tensors;
  }
  for (const auto& operation : operations) EXPECT_EQ(operation->handle.outcome().code, Code::ok);
  return tensors;
}

WorldOptions some_world(uint64_t seed, bool deterministic) {
  const std::vector<std::vector<int>> hosts = {{4}, {2, 2}, {1, 1, 1, 1}, {3, 1}, {1, 2, 1}};
  constexpr std::array<int64_t, 4> kFusion = {0, 3000, 20000, int64_t{128} << 20};
  std::mt19937_64 random(seed);
  WorldOptions options{.ranks_per_host = hosts[random() % hosts.size()], .seed = seed};
  options.shared_memory = random() % 2 == 0;
  options.knobs.deterministic = deterministic;
  options.knobs.fusion_bytes = kFusion[random() % kFusion.size()];
  options.knobs.allreduce_algorithm = static_cast<AlgorithmChoice>(random() % 7);
  options.knobs.hierarchical_allreduce = random() % 2 == 0;
  options.knobs.staging_bytes = (16 << 10) << random() % 3;
  options.knobs.stall_check_disable = true;
  return options;
}

TEST(WorldDeterministic, TheSameInputsGiveTheSameBitsInEveryJob) {
  const Tensors expected = reduced(some_world(0, true));
  for (const uint64_t seed : seeds(40)) {
    const Tensors tensors = reduced(some_world(seed, true));
    for (int rank = 0; rank < kRanks; ++rank) {
      for (size_t i = 0; i < kTensors; ++i) {
        ASSERT_EQ(tensors[rank][i], expected[0][i])
            << "seed " << seed << " rank " << rank << ": " << elements_of(i) << " "
            << name_of(type_of(i)) << " " << name_of(op_of(i));
      }
    }
  }
}

// Without it the results differ; otherwise the test above would prove nothing.
TEST(WorldDeterministic, WithoutItBitsDependOnTheJob) {
  const Tensors expected = reduced(some_world(0, false));
  bool differ = false;
  for (uint64_t seed = 1; seed <= 20 && !differ; ++seed)
    differ = reduced(some_world(seed, false)) != expected;
  EXPECT_TRUE(differ);
}

}  // namespace
}  // namespace hvd::sim
