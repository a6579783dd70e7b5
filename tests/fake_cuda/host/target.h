// What copy_scale.cu needs of the host. One thread runs all threads of a grid in turn.
#pragma once

#include <cstdint>
#include <cstring>

#define HVD_KERNEL void
#define HVD_ARGUMENT(Type) const Type&
#define HVD_DEVICE static inline

namespace fake {

/// The place in the grid of the thread that runs now.
struct GridPlace {
  unsigned long long first = 0, step = 1;
  unsigned row = 0;
};
inline thread_local GridPlace grid_place;

}  // namespace fake

namespace hvd::device {

HVD_DEVICE unsigned long long first_index() { return fake::grid_place.first; }
HVD_DEVICE unsigned long long index_step() { return fake::grid_place.step; }
HVD_DEVICE unsigned row() { return fake::grid_place.row; }

HVD_DEVICE float float_of_half(unsigned short bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const int exponent = bits >> 10 & 31;
  const uint32_t mantissa = bits & 1023;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24, exact
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  const uint32_t wide = exponent == 31 ? 255 : static_cast<uint32_t>(exponent + 112);
  return __builtin_bit_cast(float, sign | wide << 23 | mantissa << 13);
}

HVD_DEVICE unsigned short half_of_float(float value) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, value);
  const auto sign = static_cast<unsigned short>(bits >> 16 & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return 0x7fff;  // NaN, as GPUs write it
  const float absolute = __builtin_bit_cast(float, magnitude);
  if (absolute >= 65520) return static_cast<unsigned short>(sign | 0x7c00);
  // Adding a power of two whose last bit is the last one of the result rounds to nearest even.
  uint32_t exponent = magnitude >> 23;
  if (exponent < 113) exponent = 113;  // subnormal: the last bit is 2^-24
  const float magic = __builtin_bit_cast(float, (exponent + 13) << 23);
  const uint32_t rounded =
      __builtin_bit_cast(uint32_t, absolute + magic) - __builtin_bit_cast(uint32_t, magic);
  return static_cast<unsigned short>(sign | ((exponent - 113) * 1024 + rounded));
}

}  // namespace hvd::device
