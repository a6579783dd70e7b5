// HOROVOD_DETERMINISTIC: selector, executor and kernel together, on sums that depend on the order.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>

#include "core/collective/executor_testing.h"
#include "core/collective/selector.h"
#include "core/kernel/reference.h"
#include "core/sim/network.h"

namespace hvd {
namespace {

/// Values whose sum depends on the order, in every floating type.
ByteVector rounding_numbers(DType dtype, size_t elements, uint64_t seed) {
  std::mt19937_64 random(seed);
  ByteVector values(elements * element_bytes(dtype));
  for (size_t i = 0; i < elements; ++i) {
    const double size = std::ldexp(1.0, static_cast<int>(random() % 12));
    const double value = (static_cast<double>(random() % 2000) - 1000.0) / 999.0 * size;
    kernel::reference::put_number(dtype, values.data(), i, value);
  }
  return values;
}

/// Returns rank 0's result of reducing `contributions` over a group of this kind with the schedule
/// selected by `rules`.
ByteVector reduced(const std::vector<ByteVector>& contributions, DType dtype,
                   const AllreduceRules& rules, const sim::NetworkOptions& options, uint64_t seed,
                   ReduceOp op = ReduceOp::average) {
  const int size = static_cast<int>(contributions.size());
  sim::Network network(size, seed, options);
  std::vector<ByteVector> memory = contributions;
  std::vector<Work> works(contributions.size());
  for (int rank = 0; rank < size; ++rank) {
    Work& work = works[rank];
    work.output.add(memory[rank].data(), memory[rank].size());
    work.input = work.output;
    const GroupFacts facts{.rank = rank, .size = size, .shared_memory = options.shared_memory};
    work.plan = split_plan(choose_allreduce(facts, memory[0].size(), rules), memory[rank].size(),
                           options.unit_bytes, element_bytes(dtype));
    work.dtype = dtype;
    work.op = op;
    work.prescale = 0.3;
    work.postscale = 0.7;
  }
  for (const auto& error : network.run(std::move(works))) EXPECT_FALSE(error.has_value());
  for (const ByteVector& other : memory) EXPECT_EQ(other, memory[0]);
  return memory[0];
}

/// Splits a buffer of all tensors by rank.
std::vector<ByteVector> cut(const std::vector<ByteVector>& all, size_t begin, size_t bytes) {
  std::vector<ByteVector> part;
  for (const ByteVector& one : all)
    part.emplace_back(one.begin() + static_cast<ptrdiff_t>(begin),
                      one.begin() + static_cast<ptrdiff_t>(begin + bytes));
  return part;
}

constexpr std::array kChoices = {
    AlgorithmChoice::automatic,          AlgorithmChoice::direct,           AlgorithmChoice::ring,
    AlgorithmChoice::recursive_doubling, AlgorithmChoice::halving_doubling, AlgorithmChoice::tree,
    AlgorithmChoice::parameter_server};

TEST(Deterministic, GivesTheSameBitsWhateverTheBatchTheAlgorithmAndTheTransport) {
  constexpr std::array<size_t, 5> kTensors = {1, 7, 5000, 64, 333};  // elements
  for (const DType dtype : {DType::float32, DType::float16, DType::bfloat16, DType::float64})
    for (const int size : {2, 3, 5, 8}) {
      std::vector<ByteVector> all;
      for (int rank = 0; rank < size; ++rank)
        all.push_back(rounding_numbers(dtype, 5405, static_cast<uint64_t>(size * 100 + rank)));
      const ByteVector expected = reduced(all, dtype, {.deterministic = true},
                                          {.unit_bytes = 512, .shared_memory = true}, 1);
      uint64_t seed = 1;
      for (const AlgorithmChoice choice : kChoices)
        for (const bool shared : {true, false}) {
          const AllreduceRules rules{.choice = choice, .deterministic = true};
          const sim::NetworkOptions options{.unit_bytes = size_t{256} << seed % 4,
                                            .shared_memory = shared};
          ASSERT_EQ(reduced(all, dtype, rules, options, ++seed), expected) << "fused";
          ByteVector singles;
          for (const size_t elements : kTensors) {
            const auto alone = cut(all, singles.size(), elements * element_bytes(dtype));
            const ByteVector result = reduced(alone, dtype, rules, options, ++seed);
            singles.insert(singles.end(), result.begin(), result.end());
          }
          ASSERT_EQ(singles, expected) << "each alone";
        }
    }
}

TEST(Deterministic, WithoutItTheAlgorithmShows) {
  std::vector<ByteVector> all;
  for (int rank = 0; rank < 5; ++rank)
    all.push_back(rounding_numbers(DType::float32, 500, static_cast<uint64_t>(rank)));
  const auto by = [&](AlgorithmChoice choice) {
    return reduced(all, DType::float32, {.choice = choice}, {}, 1, ReduceOp::sum);
  };
  EXPECT_NE(by(AlgorithmChoice::ring), by(AlgorithmChoice::direct));
  EXPECT_NE(by(AlgorithmChoice::tree), by(AlgorithmChoice::direct));
}

}  // namespace
}  // namespace hvd
