// The element types of the kernels, and how each is computed: half types in float. For the GPU and
// for the host, see target.h.
#pragma once

#include "target.h"

namespace hvd::device {

typedef unsigned long long u64;
typedef unsigned int u32;
typedef unsigned short u16;

struct Float32 {
  typedef float Stored;
  typedef float Wide;
  HVD_DEVICE float widen(float value) { return value; }
  HVD_DEVICE float narrow(float value) { return value; }
};
struct Float64 {
  typedef double Stored;
  typedef double Wide;
  HVD_DEVICE double widen(double value) { return value; }
  HVD_DEVICE double narrow(double value) { return value; }
};
struct Float16 {
  typedef u16 Stored;
  typedef float Wide;
  HVD_DEVICE float widen(u16 bits) { return float_of_half(bits); }
  HVD_DEVICE u16 narrow(float value) { return half_of_float(value); }
};
struct BFloat16 {
  typedef u16 Stored;
  typedef float Wide;
  HVD_DEVICE float widen(u16 bits) {
    return __builtin_bit_cast(float, static_cast<u32>(bits) << 16);
  }
  HVD_DEVICE u16 narrow(float value) {
    const u32 bits = __builtin_bit_cast(u32, value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<u16>((bits >> 16) | 0x40);  // NaN
    return static_cast<u16>((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
  }
};

template <class T, int kLanes>
struct alignas(sizeof(T) * kLanes) Vector {
  T lane[kLanes];
};

}  // namespace hvd::device
