// The reference implementation of kernel.h: one element at a time, as simple as possible. Only
// tests include it.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>

#include "core/base/assert.h"
#include "core/base/bytes.h"
#include "core/base/dtype.h"

namespace hvd::kernel::reference {

/// A 16-bit binary floating-point format, by its definition: exact, subnormals included, ties to
/// even.
template <int kExponentBits, int kMantissaBits>
struct Small {
  uint16_t bits = 0;

  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr int kLargestExponent = (1 << kExponentBits) - 1;

  static Small of(float value) {
    const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
    const uint16_t infinity = kLargestExponent << kMantissaBits;
    if (std::isnan(value)) return {static_cast<uint16_t>(sign | infinity | 1)};
    if (std::isinf(value)) return {static_cast<uint16_t>(sign | infinity)};
    const double magnitude = std::fabs(static_cast<double>(value));
    const int exponent = magnitude == 0 ? 1 - kBias : std::max(std::ilogb(magnitude), 1 - kBias);
    const double cells = std::nearbyint(std::ldexp(magnitude, kMantissaBits - exponent));
    // A carry out of the mantissa increments the exponent; a subnormal has exponent 0.
    const double encoded = cells + std::ldexp(exponent + kBias - 1, kMantissaBits);
    return {
        static_cast<uint16_t>(sign | (encoded < infinity ? static_cast<int>(encoded) : infinity))};
  }

  float value() const {
    const int exponent = bits >> kMantissaBits & kLargestExponent;
    const int mantissa = bits & ((1 << kMantissaBits) - 1);
    double magnitude;
    if (exponent == kLargestExponent)
      magnitude = mantissa ? std::numeric_limits<double>::quiet_NaN()
                           : std::numeric_limits<double>::infinity();
    else if (exponent == 0)
      magnitude = std::ldexp(mantissa, 1 - kBias - kMantissaBits);
    else
      magnitude = std::ldexp(mantissa + (1 << kMantissaBits), exponent - kBias - kMantissaBits);
    return static_cast<float>(bits & 0x8000 ? -magnitude : magnitude);
  }
};
using Float16 = Small<5, 10>;
using BFloat16 = Small<8, 7>;

template <class T>
T widened(T value) {
  return value;
}
inline float widened(Float16 value) { return value.value(); }
inline float widened(BFloat16 value) { return value.value(); }

template <class T, class Wide>
T narrowed(Wide value) {
  if constexpr (std::is_arithmetic_v<T>)
    return value;
  else
    return T::of(value);
}

template <class T>
T combine(ReduceOp op, T a, T b) {
  using Wrapping = std::conditional_t<std::is_integral_v<T>, uint64_t, T>;
  switch (op) {
    case ReduceOp::sum:
      return static_cast<T>(Wrapping(a) + Wrapping(b));
    case ReduceOp::product:
      return static_cast<T>(Wrapping(a) * Wrapping(b));
    case ReduceOp::min:
      return b < a || b != b ? b : a;
    case ReduceOp::max:
      return a < b || b != b ? b : a;
    case ReduceOp::average:
    case ReduceOp::adasum:
      break;
  }
  HVD_ASSERT(false);
}

template <class T>
T element(const void* from, size_t index) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(from) + index * sizeof(T), sizeof(T));
  return value;
}

/// Calls `visit` with a null pointer to the element type of `dtype`.
template <class Visit>
void with_type(DType dtype, Visit visit) {
  switch (dtype) {
    case DType::boolean:
    case DType::uint8:
      return visit(static_cast<uint8_t*>(nullptr));
    case DType::int8:
      return visit(static_cast<int8_t*>(nullptr));
    case DType::uint16:
      return visit(static_cast<uint16_t*>(nullptr));
    case DType::int16:
      return visit(static_cast<int16_t*>(nullptr));
    case DType::int32:
      return visit(static_cast<int32_t*>(nullptr));
    case DType::int64:
      return visit(static_cast<int64_t*>(nullptr));
    case DType::float16:
      return visit(static_cast<Float16*>(nullptr));
    case DType::float32:
      return visit(static_cast<float*>(nullptr));
    case DType::float64:
      return visit(static_cast<double*>(nullptr));
    case DType::bfloat16:
      return visit(static_cast<BFloat16*>(nullptr));
  }
  HVD_ASSERT(false);
}

/// Returns the number of contributions in source `index`.
inline double count_of(std::span<const int> counts, size_t index) {
  return counts.empty() ? 1 : counts[index];
}

/// Computes element `index` of a sum or product that is scaled before rounding: float32 in double,
/// half types in float.
template <class T, class Wide>
T reduced_wide(ReduceOp op, std::span<const void* const> sources, size_t index,
               std::span<const int> counts, double factor) {
  Wide result = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    const Wide value = widened(element<T>(sources[i], index));
    const auto weight = static_cast<Wide>(count_of(counts, i));
    if (i == 0)
      result = op == ReduceOp::product ? value : value * weight;
    else
      result = op == ReduceOp::product ? result * value : result + value * weight;
  }
  const Wide scaled = result * static_cast<Wide>(factor);
  if constexpr (std::is_arithmetic_v<T>)
    return static_cast<T>(scaled);
  else
    return T::of(scaled);
}

/// A compensated sum of doubles, with the rounding errors added up separately; then the quotient.
inline double averaged(std::span<const void* const> sources, size_t index,
                       std::span<const int> counts, double divisor) {
  double sum = 0, lost = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    const double value = element<double>(sources[i], index), weight = count_of(counts, i);
    const double product = value * weight, before = sum;
    sum = i == 0 ? product : before + product;
    const double added = sum - before;
    if (i > 0) lost += (before - (sum - added)) + (product - added);
    lost += std::fma(value, weight, -product);
  }
  const double quotient = sum / divisor;
  const double remainder = lost - std::fma(quotient, divisor, -sum);
  return std::fabs(remainder) > 0 ? quotient + remainder * (1 / divisor) : quotient;
}

struct Options {
  double factor = 1.0;
  int divisor = 1;
  std::span<const int> counts{};
};

/// Two sources of equal weight without scaling: half of their sum.
inline bool is_plain_mean(ReduceOp op, size_t sources, const Options& options) {
  return op == ReduceOp::average && sources == 2 && options.factor == 1 && options.divisor == 1 &&
         count_of(options.counts, 0) == count_of(options.counts, 1);
}

template <class T>
T reduced_scaled(ReduceOp op, std::span<const void* const> sources, size_t index,
                 const Options& options) {
  if (is_plain_mean(op, sources.size(), options)) {
    const auto sum =
        widened(element<T>(sources[0], index)) + widened(element<T>(sources[1], index));
    return narrowed<T>(sum / 2);
  }
  double divisor = options.divisor;
  std::span<const int> counts;  // for average
  if (op == ReduceOp::average) {
    counts = options.counts;
    double contributions = 0;
    for (size_t i = 0; i < sources.size(); ++i) contributions += count_of(options.counts, i);
    divisor *= contributions;
  }
  if constexpr (std::is_same_v<T, double>) {
    if (op != ReduceOp::product) return averaged(sources, index, counts, divisor) * options.factor;
    return reduced_wide<T, double>(op, sources, index, {}, options.factor / divisor);
  } else {
    using Wide = std::conditional_t<std::is_same_v<T, float>, double, float>;
    return reduced_wide<T, Wide>(op, sources, index, counts, options.factor / divisor);
  }
}

inline void reduce(ReduceOp op, DType dtype, void* destination,
                   std::span<const void* const> sources, size_t elements) {
  if (dtype == DType::boolean)
    op = op == ReduceOp::min || op == ReduceOp::product ? ReduceOp::min : ReduceOp::max;
  with_type(dtype, [&]<class T>(T*) {
    for (size_t i = 0; i < elements; ++i) {
      auto result = widened(element<T>(sources[0], i));
      for (const void* source : sources.subspan(1))
        result = combine(op, result, widened(element<T>(source, i)));
      const T stored = narrowed<T>(result);
      std::memcpy(static_cast<std::byte*>(destination) + i * sizeof(T), &stored, sizeof(T));
    }
  });
}

/// Computes an average, or a scaled sum or product, of a floating type.
inline void reduce(ReduceOp op, DType dtype, void* destination,
                   std::span<const void* const> sources, size_t elements, const Options& options) {
  with_type(dtype, [&]<class T>(T*) {
    if constexpr (!std::is_integral_v<T>) {
      for (size_t i = 0; i < elements; ++i) {
        const T stored = reduced_scaled<T>(op, sources, i, options);
        std::memcpy(static_cast<std::byte*>(destination) + i * sizeof(T), &stored, sizeof(T));
      }
    }
  });
}

template <class T>
T scaled(T value, double factor, int divisor) {
  if constexpr (std::is_integral_v<T>) {
    if (factor == 1.0) return static_cast<T>(value / static_cast<int64_t>(divisor));
    const long double product = static_cast<double>(value) * factor / divisor;
    if (product != product) return 0;
    if (product >= static_cast<long double>(std::numeric_limits<T>::max()))
      return std::numeric_limits<T>::max();
    if (product <= static_cast<long double>(std::numeric_limits<T>::min()))
      return std::numeric_limits<T>::min();
    return static_cast<T>(product);
  } else {
    const auto wide = widened(value);
    using Wide = std::remove_const_t<decltype(wide)>;
    const bool divides = (divisor & (divisor - 1)) != 0;
    if (!divides) return narrowed<T>(wide * static_cast<Wide>(factor / divisor));
    const Wide quotient = wide / static_cast<Wide>(divisor);
    return narrowed<T>(quotient * static_cast<Wide>(factor));
  }
}

inline void scale(DType dtype, void* destination, const void* source, double factor,
                  size_t elements, int divisor = 1) {
  if (elements == 0) return;  // the pointers may be null
  if (factor == 1.0 && divisor == 1) {
    std::memmove(destination, source, elements * element_bytes(dtype));
    return;
  }
  with_type(dtype, [&]<class T>(T*) {
    for (size_t i = 0; i < elements; ++i) {
      const T stored = scaled(element<T>(source, i), factor, divisor);
      std::memcpy(static_cast<std::byte*>(destination) + i * sizeof(T), &stored, sizeof(T));
    }
  });
}

/// Returns elements as double, for tests that compute with plain numbers.
inline double number_at(DType dtype, const void* data, size_t index) {
  double number = 0;
  with_type(dtype,
            [&]<class T>(T*) { number = static_cast<double>(widened(element<T>(data, index))); });
  return number;
}
inline void put_number(DType dtype, void* data, size_t index, double number) {
  with_type(dtype, [&]<class T>(T*) {
    T stored;
    if constexpr (std::is_arithmetic_v<T>)
      stored = static_cast<T>(number);
    else
      stored = T::of(static_cast<float>(number));
    std::memcpy(static_cast<std::byte*>(data) + index * sizeof(T), &stored, sizeof(T));
  });
}

/// Returns whether both have the same bits or both are NaN.
inline bool same_element(DType dtype, const void* a, const void* b, size_t index) {
  bool same = false;
  with_type(dtype, [&]<class T>(T*) {
    const T left = element<T>(a, index);
    const T right = element<T>(b, index);
    const auto x = widened(left);
    const auto y = widened(right);
    same = std::memcmp(&left, &right, sizeof(T)) == 0 || (x != x && y != y);
  });
  return same;
}

}  // namespace hvd::kernel::reference
