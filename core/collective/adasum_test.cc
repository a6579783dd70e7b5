// Compares the arithmetic of Adasum with a simple implementation in double.
#include "core/collective/adasum.h"

#include <gtest/gtest.h>

#include <array>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "core/base/bytes.h"
#include "core/kernel/kernel.h"
#include "core/kernel/reference.h"

namespace hvd {
namespace {

using kernel::reference::number_at;
using kernel::reference::put_number;
using Numbers = std::vector<double>;

constexpr std::array kTypes = {DType::float16, DType::bfloat16, DType::float32, DType::float64};

/// Memory at an odd address, as for a tensor inside another one.
struct Vector {
  DType dtype;
  ByteVector bytes;
  Vector(DType type, size_t count) : dtype(type), bytes(1 + count * element_bytes(type)) {}
  std::byte* data() { return bytes.data() + 1; }
  double operator[](size_t i) const { return number_at(dtype, bytes.data() + 1, i); }
};

Vector some_numbers(DType dtype, size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  Vector vector(dtype, count);
  for (size_t i = 0; i < count; ++i)
    put_number(dtype, vector.data(), i, static_cast<double>(random() % 2001) / 1000 - 1);
  return vector;
}

Numbers numbers_of(const Vector& vector, size_t count) {
  Numbers numbers(count);
  for (size_t i = 0; i < count; ++i) numbers[i] = vector[i];
  return numbers;
}

double product(const Numbers& a, const Numbers& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// One unit in the last place of numbers below 4.
double precision(DType dtype) {
  if (dtype == DType::float16) return 0x1p-9;
  if (dtype == DType::bfloat16) return 0x1p-6;
  return dtype == DType::float32 ? 0x1p-22 : 0x1p-50;
}

TEST(Adasum, CombinesTwoVectorsAsTheFormulaSays) {
  for (const DType dtype : kTypes)
    for (const size_t count : {0, 1, 5, 8, 511, 512, 513, 2000}) {
      SCOPED_TRACE(testing::Message() << count << " of " << name_of(dtype));
      Vector in_a = some_numbers(dtype, count, 1), in_b = some_numbers(dtype, count, 2);
      const Numbers a = numbers_of(in_a, count), b = numbers_of(in_b, count);
      AdasumProducts products;
      add_products(products, dtype, in_a.data(), in_b.data(), count);
      const double tolerance = 1e-12 * static_cast<double>(count);
      EXPECT_NEAR(products.dot, product(a, b), tolerance);
      EXPECT_NEAR(products.a, product(a, a), tolerance);
      EXPECT_NEAR(products.b, product(b, b), tolerance);
      adasum_combine(dtype, in_a.data(), in_a.data(), in_b.data(), adasum_factors(products), count);
      for (size_t i = 0; i < count; ++i) {
        const double expected = (1 - product(a, b) / (2 * product(a, a))) * a[i] +
                                (1 - product(a, b) / (2 * product(b, b))) * b[i];
        ASSERT_NEAR(in_a[i], expected, precision(dtype)) << i;
      }
    }
}

TEST(Adasum, EqualVectorsStayAndOrthogonalOnesAddUp) {
  const std::array<float, 4> a = {1, 2, 0, 0}, b = {0, 0, 3, 4};
  const auto sum = [](const std::array<float, 4>& x, const std::array<float, 4>& y) {
    AdasumProducts products;
    add_products(products, DType::float32, x.data(), y.data(), 4);
    std::array<float, 4> result{};
    adasum_combine(DType::float32, result.data(), x.data(), y.data(), adasum_factors(products), 4);
    return result;
  };
  EXPECT_EQ(sum(a, a), a);
  EXPECT_EQ(sum(a, b), (std::array<float, 4>{1, 2, 3, 4}));
  EXPECT_EQ(sum(a, {}), a);
  EXPECT_EQ(sum({}, b), b);
}

TEST(Adasum, AFactorIsOneWhereItsVectorIsNearlyZero) {
  const double limit = std::sqrt(DBL_MIN);
  EXPECT_EQ(adasum_factors({limit, limit / 2, 4 * limit}).a, 1);
  EXPECT_EQ(adasum_factors({limit, limit / 2, 4 * limit}).b, 0.875);
  EXPECT_EQ(adasum_factors({limit, limit, 0}).a, 0.5);
  EXPECT_EQ(adasum_factors({limit, limit, 0}).b, 1);
}

TEST(Adasum, ProductsOfFloatsAccumulateInDouble) {
  const std::vector<float> large(100000, 1e15F), small(100000, 1e-30F);
  AdasumProducts products;
  add_products(products, DType::float32, large.data(), small.data(), large.size());
  EXPECT_NEAR(products.a, 1e35, 1e28);
  EXPECT_NEAR(products.b, 1e-55, 1e-61);  // too small for a float
}

TEST(AdasumStretch, CoversATensorOnceAtEveryLevel) {
  for (int levels = 0; levels <= 5; ++levels)
    for (const size_t elements : {0, 1, 2, 7, 31, 100}) {
      std::vector<int> holders(elements);
      for (int rank = 0; rank < 1 << levels; ++rank) {
        const Stretch stretch = adasum_stretch(rank, levels, elements);
        for (size_t i = stretch.begin; i < stretch.end; ++i) ++holders[i];
      }
      EXPECT_EQ(holders, std::vector<int>(elements, 1));
    }
}

TEST(AdasumStretch, APairHoldsTheSameAndThenAHalfEach) {
  for (int rank = 0; rank < 8; rank += 2) {
    EXPECT_EQ(adasum_stretch(rank, 0, 20), adasum_stretch(rank ^ 1, 0, 20));
    EXPECT_EQ(adasum_stretch(rank, 1, 20), (Stretch{0, 10}));
    EXPECT_EQ(adasum_stretch(rank ^ 1, 1, 20), (Stretch{10, 20}));
  }
  EXPECT_EQ(adasum_stretch(1, 2, 20), (Stretch{10, 15}));
  EXPECT_EQ(adasum_stretch(3, 2, 20), (Stretch{15, 20}));
}

TEST(PairExchange, EachGivesItsChunkAndGetsTheOther) {
  const Schedule lower = pair_exchange(2, 6), higher = pair_exchange(6, 2);
  const Phase& a = lower.phases.at(0);
  const Phase& b = higher.phases.at(0);
  EXPECT_EQ(a.sends.at(0).peer, 6);
  EXPECT_EQ(b.sends.at(0).peer, 2);
  EXPECT_EQ(a.sends.at(0).range, b.receives.at(0).range);
  EXPECT_EQ(a.sends.at(0).base, b.receives.at(0).base);
  EXPECT_EQ(b.sends.at(0).range, a.receives.at(0).range);
  EXPECT_EQ(b.sends.at(0).base, a.receives.at(0).base);
  EXPECT_NE(a.sends.at(0).range, b.sends.at(0).range);
}

}  // namespace
}  // namespace hvd
