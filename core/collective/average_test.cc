// Averages of floating-point numbers by every algorithm: means of means, over the simulated
// network.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "core/collective/executor_testing.h"
#include "core/kernel/reference.h"
#include "core/sim/network.h"

namespace hvd {
namespace {

namespace reference = kernel::reference;

constexpr std::array kFloating = {DType::float16, DType::bfloat16, DType::float32, DType::float64};

using Numbers = std::vector<double>;

ByteVector bytes_of(DType dtype, const Numbers& numbers) {
  ByteVector bytes(numbers.size() * element_bytes(dtype));
  for (size_t i = 0; i < numbers.size(); ++i)
    reference::put_number(dtype, bytes.data(), i, numbers[i]);
  return bytes;
}

class Average : public testing::TestWithParam<Named> {
 protected:
  /// The result of every rank, which must be equal on all.
  ByteVector averaged(DType dtype, const std::vector<ByteVector>& contributions,
                      double postscale = 1.0) {
    const int size = static_cast<int>(contributions.size());
    std::vector<ByteVector> memory = contributions;
    std::vector<Work> works(contributions.size());
    for (int rank = 0; rank < size; ++rank) {
      Work& work = works[rank];
      work.output.add(memory[rank].data(), memory[rank].size());
      work.input = work.output;
      work.plan =
          split_plan(GetParam().make(rank, size), memory[rank].size(), 512, element_bytes(dtype));
      work.dtype = dtype;
      work.op = ReduceOp::average;
      work.postscale = postscale;
    }
    ++seed_;
    sim::Network network(size, seed_, {.unit_bytes = 512, .shared_memory = seed_ % 2 == 0});
    run_all(network, std::move(works));
    for (const ByteVector& other : memory) EXPECT_EQ(other, memory[0]);
    return memory[0];
  }

 private:
  uint64_t seed_ = 1;
};

TEST_P(Average, OfLargeHalvesDoesNotOverflow) {
  const ByteVector large = bytes_of(DType::float16, Numbers(300, 60000.0));
  const ByteVector half = bytes_of(DType::float16, Numbers(300, 30000.0));
  for (const int size : {1, 2, 3, 4, 5, 8}) {
    SCOPED_TRACE(size);
    const std::vector<ByteVector> all(static_cast<size_t>(size), large);
    EXPECT_EQ(averaged(DType::float16, all), large);
    EXPECT_EQ(averaged(DType::float16, all, 0.5), half);
  }
}

TEST_P(Average, OfEqualNumbersIsThatNumber) {
  for (const DType dtype : kFloating) {
    std::mt19937_64 random(3);
    Numbers numbers(300);
    for (double& number : numbers)
      number =
          std::ldexp(static_cast<double>(random()) - 9e18, -70 + static_cast<int>(random() % 20));
    const ByteVector equal = bytes_of(dtype, numbers);
    for (int size = 1; size <= 9; ++size) {
      SCOPED_TRACE(testing::Message() << size << " ranks, " << name_of(dtype));
      EXPECT_EQ(averaged(dtype, std::vector<ByteVector>(static_cast<size_t>(size), equal)), equal);
    }
  }
}

/// The spacing of numbers near `number`.
double step_at(DType dtype, double number) {
  const int bits = dtype == DType::float16    ? 11
                   : dtype == DType::bfloat16 ? 8
                   : dtype == DType::float32  ? 24
                                              : 53;
  const int least = dtype == DType::float16 ? -14 : -126;
  const int exponent = number == 0 ? least : std::max(std::ilogb(number), least);
  return std::ldexp(1.0, exponent + 1 - bits);
}

/// Each rank rounds a mean at most once, and no mean is larger than the largest contribution.
void expect_near(DType dtype, const std::vector<ByteVector>& contributions,
                 const ByteVector& result) {
  const size_t count = result.size() / element_bytes(dtype), size = contributions.size();
  for (size_t i = 0; i < count; ++i) {
    double sum = 0, largest = 0;
    for (const ByteVector& one : contributions) {
      const double number = reference::number_at(dtype, one.data(), i);
      sum += number;
      largest = std::max(largest, std::abs(number));
    }
    const double slack = step_at(dtype, largest) * (0.5 + 0.25 * static_cast<double>(size));
    ASSERT_NEAR(reference::number_at(dtype, result.data(), i), sum / static_cast<double>(size),
                slack + std::abs(sum) * 0x1p-50)
        << "element " << i;
  }
}

TEST_P(Average, IsNearTheExactMeanAlsoOfNumbersThatAreHardlyMoreThanZero) {
  for (const DType dtype : kFloating)
    for (const int exponent : {-24, -20, -14, 0, 14})
      for (const int size : {2, 3, 5, 6, 8}) {
        SCOPED_TRACE(testing::Message()
                     << size << " ranks, " << name_of(dtype) << ", 2^" << exponent);
        std::mt19937_64 random(static_cast<uint64_t>(size));
        std::vector<ByteVector> all;
        for (int rank = 0; rank < size; ++rank) {
          Numbers numbers(200);
          for (double& number : numbers)
            number = std::ldexp(static_cast<double>(random()) * 0x1p-63 - 1.0, exponent);
          all.push_back(bytes_of(dtype, numbers));
        }
        expect_near(dtype, all, averaged(dtype, all));
      }
}

INSTANTIATE_TEST_SUITE_P(All, Average, testing::ValuesIn(kAllreduces),
                         [](const auto& info) { return info.param.name; });

/// Returns the result for more ranks than kMaxSources; half of them contribute 1 and half 3.
float of_many_ranks(ReduceOp op, double postscale) {
  constexpr int kSize = static_cast<int>(kernel::kMaxSources) + 76;
  std::vector<std::array<float, 300>> memory(kSize);
  std::vector<Work> works(kSize);
  for (int rank = 0; rank < kSize; ++rank) {
    memory[rank].fill(rank < kSize / 2 ? 1.0F : 3.0F);
    const size_t bytes = sizeof(memory[rank]);
    works[rank].output.add(reinterpret_cast<std::byte*>(memory[rank].data()), bytes);
    works[rank].input = works[rank].output;
    works[rank].plan = split_plan(parameter_server_allreduce(rank, kSize), bytes, 8192, 4);
    works[rank].dtype = DType::float32;
    works[rank].op = op;
    works[rank].postscale = postscale;
  }
  sim::Network network(kSize, 1, {.unit_bytes = 8192, .shared_memory = true});
  run_all(network, std::move(works));
  const auto& last = memory[kSize - 1];
  EXPECT_TRUE(std::ranges::all_of(last, [&](float result) { return result == last[0]; }));
  return last[0];
}

TEST(Averages, OfMoreRanksThanTheKernelTakesCountEachOnce) {
  EXPECT_FLOAT_EQ(of_many_ranks(ReduceOp::average, 8.0), 16.0F);
}

TEST(Averages, ScaledSumsOfMoreRanksThanTheKernelTakesCountEachOnce) {
  EXPECT_FLOAT_EQ(of_many_ranks(ReduceOp::sum, 0.5), 1100.0F);
}

}  // namespace
}  // namespace hvd
