#include "core/collective/adasum.h"

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <cstring>

#include "core/base/assert.h"
#include "core/kernel/kernel.h"

namespace hvd {
namespace {

// Number of elements converted to float or double at a time: on the stack, in the L1 cache.
constexpr size_t kBlock = 512;
// Independent partial sums, so that the compiler can use SIMD without reordering additions.
constexpr size_t kLanes = 8;

const std::byte* at(const void* data, size_t element, DType dtype) {
  return static_cast<const std::byte*>(data) + element * element_bytes(dtype);
}

template <class T>
using Block = std::array<T, kBlock>;

/// Converts `count` elements to float; float64 stays float64. Elements may be unaligned.
void load(Block<double>& block, DType, const std::byte* from, size_t count) {
  std::memcpy(block.data(), from, count * sizeof(double));
}
void load(Block<float>& block, DType dtype, const std::byte* from, size_t count) {
  if (dtype == DType::float32)
    std::memcpy(block.data(), from, count * sizeof(float));
  else
    kernel::widen(dtype, block.data(), from, count);
}

void store(const Block<double>& block, DType, void* to, size_t count) {
  std::memcpy(to, block.data(), count * sizeof(double));
}
void store(const Block<float>& block, DType dtype, void* to, size_t count) {
  if (dtype == DType::float32)
    std::memcpy(to, block.data(), count * sizeof(float));
  else
    kernel::narrow(dtype, to, block.data(), count);
}

/// Calls `visit(a, b, first, count)` for each block of two vectors, with converted elements.
template <class T, class Visit>
void for_each_block(DType dtype, const void* a, const void* b, size_t elements, Visit visit) {
  Block<T> of_a, of_b;
  for (size_t first = 0; first < elements; first += kBlock) {
    const size_t count = std::min(kBlock, elements - first);
    load(of_a, dtype, at(a, first, dtype), count);
    load(of_b, dtype, at(b, first, dtype), count);
    visit(of_a, of_b, first, count);
  }
}

double sum_of(const std::array<double, kLanes>& lanes) {
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

template <class T>
void add_block(AdasumProducts& products, Block<T>& a, Block<T>& b, size_t count) {
  const size_t padded = (count + kLanes - 1) / kLanes * kLanes;
  std::fill(a.begin() + count, a.begin() + padded, T{0});
  std::fill(b.begin() + count, b.begin() + padded, T{0});
  std::array<double, kLanes> dot{}, square_of_a{}, square_of_b{};
  for (size_t i = 0; i < padded; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const double x = a[i + lane], y = b[i + lane];
      dot[lane] += x * y;
      square_of_a[lane] += x * x;
      square_of_b[lane] += y * y;
    }
  }
  products.dot += sum_of(dot);
  products.a += sum_of(square_of_a);
  products.b += sum_of(square_of_b);
}

template <class T>
void add(AdasumProducts& products, DType dtype, const void* a, const void* b, size_t elements) {
  for_each_block<T>(dtype, a, b, elements, [&](Block<T>& x, Block<T>& y, size_t, size_t count) {
    add_block(products, x, y, count);
  });
}

template <class T>
void combine(DType dtype, void* destination, const void* a, const void* b,
             const AdasumFactors& factors, size_t elements) {
  const auto put = [&](Block<T>& x, const Block<T>& y, size_t first, size_t count) {
    for (size_t i = 0; i < count; ++i) x[i] = static_cast<T>(factors.a * x[i] + factors.b * y[i]);
    store(x, dtype, static_cast<std::byte*>(destination) + first * element_bytes(dtype), count);
  };
  for_each_block<T>(dtype, a, b, elements, put);
}

double factor_of(double dot, double square) {
  static const double kTooSmall = std::sqrt(DBL_MIN);
  return square < kTooSmall ? 1.0 : 1.0 - dot / (2 * square);
}

}  // namespace

void add_products(AdasumProducts& products, DType dtype, const void* a, const void* b,
                  size_t elements) {
  HVD_ASSERT(is_floating(dtype));
  if (dtype == DType::float64) return add<double>(products, dtype, a, b, elements);
  add<float>(products, dtype, a, b, elements);
}

AdasumFactors adasum_factors(const AdasumProducts& products) {
  return {factor_of(products.dot, products.a), factor_of(products.dot, products.b)};
}

void adasum_combine(DType dtype, void* destination, const void* a, const void* b,
                    const AdasumFactors& factors, size_t elements) {
  HVD_ASSERT(is_floating(dtype));
  if (dtype == DType::float64) return combine<double>(dtype, destination, a, b, factors, elements);
  combine<float>(dtype, destination, a, b, factors, elements);
}

Stretch adasum_stretch(int rank, int levels, size_t elements) {
  Stretch stretch{0, elements};
  for (int level = 0; level < levels; ++level) {
    const size_t middle = stretch.begin + stretch.size() / 2;
    (rank >> level & 1 ? stretch.begin : stretch.end) = middle;
  }
  return stretch;
}

Schedule pair_exchange(int rank, int partner) {
  HVD_ASSERT(rank != partner);
  const int gives = rank < partner ? 0 : 1;
  const int gets = 1 - gives;
  Phase phase;
  phase.sends.push_back({.peer = partner, .range = {gives, 1}, .base = gives});
  phase.receives.push_back({.peer = partner, .range = {gets, 1}, .base = gets});
  return {.chunks = 2, .phases = {std::move(phase)}};
}

}  // namespace hvd
