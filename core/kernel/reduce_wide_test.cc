// Averages, and sums and products that are scaled before rounding.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>
#include <vector>

#include "core/kernel/kernel.h"
#include "core/kernel/reference.h"
#include "core/kernel/testing.h"

namespace hvd::kernel {
namespace {

constexpr std::array kFloating = {DType::float16, DType::bfloat16, DType::float32, DType::float64};
constexpr std::array kIntegers = {DType::uint8, DType::int8,  DType::uint16,
                                  DType::int16, DType::int32, DType::int64};

class Floating : public testing::TestWithParam<DType> {};

struct WideCase {
  ReduceOp op = ReduceOp::average;
  std::vector<int> counts;  ///< one per source
  size_t elements = 0;
  size_t aliased = 0;  ///< index of the source that is the destination; number of sources: none
  Scaling scaling{};
};

void check(DType dtype, const WideCase& c) {
  SCOPED_TRACE(testing::Message() << name_of(c.op) << " of " << c.counts.size() << " x "
                                  << c.elements << ", first count " << c.counts[0]
                                  << ", destination is " << c.aliased << ", scaled by "
                                  << c.scaling.factor);
  const size_t bytes = c.elements * element_bytes(dtype);
  std::vector<Buffer> buffers;
  std::vector<const void*> sources;
  for (size_t i = 0; i <= c.counts.size(); ++i) {
    buffers.emplace_back(bytes, 3 * i % 64);
    fill_random(dtype, buffers[i], c.elements + 100 * i);
  }
  for (size_t i = 0; i < c.counts.size(); ++i) sources.push_back(buffers[i].data());
  Buffer expected(bytes, 0);
  reference::reduce(c.op, dtype, expected.data(), sources, c.elements,
                    {.factor = c.scaling.factor, .divisor = c.scaling.divisor, .counts = c.counts});
  Buffer& target = buffers[c.aliased];
  const Buffer before = target;
  reduce(c.op, dtype, target.data(), sources, c.elements,
         {.scaling = c.scaling, .counts = c.counts});
  expect_same(dtype, target.data(), expected.data(), c.elements);
  EXPECT_EQ(std::memcmp(target.data() + bytes, before.data() + bytes, 16), 0);
}

TEST_P(Floating, AveragesAsTheScalarReference) {
  EveryTarget().run([&] {
    for (const std::vector<int>& counts :
         std::vector<std::vector<int>>{{1}, {5}, {1, 1}, {4, 4}, {1, 2}, {3, 1, 1}, {1, 1, 1, 1}})
      for (const size_t elements : {0, 1, 3, 15, 64, 67, 515})
        for (size_t aliased = 0; aliased <= counts.size(); ++aliased)
          check(GetParam(), {.counts = counts, .elements = elements, .aliased = aliased});
  });
}

TEST_P(Floating, ScalesBeforeItRounds) {
  EveryTarget().run([&] {
    for (const ReduceOp op : {ReduceOp::average, ReduceOp::sum, ReduceOp::product})
      for (const size_t sources : {1, 2, 3})
        for (const Scaling scaling : {Scaling{0.3, 1}, Scaling{-2.0, 3}})
          check(GetParam(), {.op = op,
                             .counts = std::vector<int>(sources, 1),
                             .elements = 131,
                             .aliased = sources,
                             .scaling = scaling});
  });
}

/// Any finite numbers except the largest, including subnormal ones.
std::vector<double> any_numbers(DType dtype, size_t count) {
  std::mt19937_64 random(count);
  const int least = dtype == DType::float16 ? -24 : dtype == DType::float64 ? -1074 : -140;
  const int largest = dtype == DType::float16 ? 14 : dtype == DType::float64 ? 1010 : 115;
  std::vector<double> numbers(count);
  for (double& number : numbers) {
    const int exponent = least + static_cast<int>(random() % (largest - least));
    number = std::ldexp(1.0 + static_cast<double>(random() >> 12) * 0x1p-52, exponent);
    if (random() % 2 == 0) number = -number;
  }
  return numbers;
}

TEST_P(Floating, TheMeanOfEqualNumbersIsThatNumber) {
  constexpr size_t kElements = 1003;
  const size_t bytes = kElements * element_bytes(GetParam());
  Buffer numbers(bytes, 1), mean(bytes, 3);
  const std::vector<double> drawn = any_numbers(GetParam(), kElements);
  for (size_t i = 0; i < kElements; ++i)
    reference::put_number(GetParam(), numbers.data(), i, drawn[i]);
  EveryTarget().run([&] {
    for (size_t sources = 1; sources <= 9; ++sources) {
      SCOPED_TRACE(sources);
      const std::vector<const void*> all(sources, numbers.data());
      reduce(ReduceOp::average, GetParam(), mean.data(), all, kElements);
      expect_same(GetParam(), mean.data(), numbers.data(), kElements);
      const std::array<const void*, 2> partial = {numbers.data(), numbers.data()};
      const std::array<int, 2> counts = {1, static_cast<int>(sources)};
      reduce(ReduceOp::average, GetParam(), mean.data(), partial, kElements, {.counts = counts});
      expect_same(GetParam(), mean.data(), numbers.data(), kElements);
    }
  });
}

TEST_P(Floating, TheMeanOfWholeNumbersIsTheirSumDividedAndRoundedOnce) {
  constexpr size_t kElements = 301;
  const size_t bytes = kElements * element_bytes(GetParam());
  for (size_t ranks = 1; ranks <= 9; ++ranks) {
    std::mt19937_64 random(ranks);
    std::vector<Buffer> sources(ranks, Buffer(bytes, 1));
    Buffer expected(bytes, 0), mean(bytes, 0);
    std::vector<const void*> pointers;
    for (const Buffer& source : sources) pointers.push_back(source.data());
    for (size_t i = 0; i < kElements; ++i) {
      double sum = 0;
      for (Buffer& source : sources) {
        const double number = static_cast<double>(random() % 200) - 100;
        reference::put_number(GetParam(), source.data(), i, number);
        sum += number;
      }
      reference::put_number(GetParam(), expected.data(), i, sum / static_cast<double>(ranks));
    }
    EveryTarget().run([&] {
      reduce(ReduceOp::average, GetParam(), mean.data(), pointers, kElements);
      expect_same(GetParam(), mean.data(), expected.data(), kElements);
    });
  }
}

TEST_P(Floating, AMeanOfMinusZerosKeepsTheSignAndInfinitiesStay) {
  const double infinity = std::numeric_limits<double>::infinity();
  const std::array<double, 4> numbers = {-0.0, infinity, -infinity, 0.0};
  std::array<std::byte, 32> values{}, mean{};
  for (size_t i = 0; i < numbers.size(); ++i)
    reference::put_number(GetParam(), values.data(), i, numbers[i]);
  EveryTarget().run([&] {
    for (const size_t sources : {1, 2, 3, 5}) {
      reduce(ReduceOp::average, GetParam(), mean.data(),
             std::vector<const void*>(sources, values.data()), numbers.size());
      EXPECT_EQ(std::memcmp(mean.data(), values.data(), 4 * element_bytes(GetParam())), 0);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Types, Floating, testing::ValuesIn(kFloating),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST(HalfAverages, DoNotOverflowWhereTheSumWould) {
  std::array<uint16_t, 70> large, result{};
  large.fill(reference::Float16::of(60000).bits);
  EveryTarget().run([&] {
    for (size_t sources = 2; sources <= 8; ++sources) {
      reduce(ReduceOp::average, DType::float16, result.data(),
             std::vector<const void*>(sources, large.data()), large.size());
      EXPECT_EQ(result, large) << sources;
    }
    const std::array<const void*, 2> two = {large.data(), large.data()};
    reduce(ReduceOp::sum, DType::float16, result.data(), two, large.size(),
           {.scaling = {.factor = 0.5}});
    EXPECT_EQ(result, large) << "a sum that is scaled";
  });
}

class Integers : public testing::TestWithParam<DType> {};

/// The limits of the range, zero and their neighbours, and random values.
template <class T>
std::vector<T> telling_integers() {
  using Limits = std::numeric_limits<T>;
  std::vector<T> all = {Limits::min(), Limits::max(), 0};
  for (int i = 1; i < 12; ++i) {
    all.push_back(static_cast<T>(Limits::min() + i));
    all.push_back(static_cast<T>(Limits::max() - i));
    all.push_back(static_cast<T>(i));
    all.push_back(static_cast<T>(-i));
  }
  std::mt19937_64 random(7);
  for (int i = 0; i < 3000; ++i) all.push_back(static_cast<T>(random() >> random() % 64));
  return all;
}

TEST_P(Integers, AreDividedExactlyAndTruncatedTowardZero) {
  const auto check_type = [&]<class T>(T*) {
    if constexpr (std::is_integral_v<T>) {
      const std::vector<T> values = telling_integers<T>();
      std::vector<T> result(values.size());
      for (const int divisor : {1, 2, 3, 5, 7, 8, 9, 10, 49, 255, 256, 257, 1000, 65536, 99991,
                                std::numeric_limits<int>::max()}) {
        scale(GetParam(), result.data(), values.data(), {.divisor = divisor}, values.size());
        for (size_t i = 0; i < values.size(); ++i)
          ASSERT_EQ(result[i], static_cast<T>(values[i] / static_cast<int64_t>(divisor)))
              << int64_t{values[i]} << " / " << divisor;
      }
    }
  };
  EveryTarget().run([&] { reference::with_type(GetParam(), check_type); });
}

INSTANTIATE_TEST_SUITE_P(Types, Integers, testing::ValuesIn(kIntegers),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST(IntegerScaling, ByAFactorComputesTheQuotientOfTheProductInDouble) {
  const std::array<int32_t, 4> values = {49, -49, 7, 100};
  std::array<int32_t, 4> result{};
  scale(DType::int32, result.data(), values.data(), {.factor = 3.0, .divisor = 49}, 4);
  EXPECT_EQ(result, (std::array<int32_t, 4>{3, -3, 0, 6}));
}

}  // namespace
}  // namespace hvd::kernel
