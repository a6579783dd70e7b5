// Compiled once for every SIMD target by foreach_target.h, which includes this file again; kernel.h
// and the choice between the targets come last, once.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernel/scale.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
//
#include "core/base/assert.h"
#include "core/kernel/kernel.h"
#include "core/kernel/lanes-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace hvd::kernel::HWY_NAMESPACE {

template <class Element>
void scale_floating(void* destination, const void* source, double factor, size_t elements) {
  using Stored = typename Element::Stored;
  using Lane = typename Element::Lane;
  const hn::ScalableTag<Lane> d;
  const auto by = hn::Set(d, static_cast<Lane>(factor));
  const auto* from = static_cast<const Stored*>(source);
  auto* to = static_cast<Stored*>(destination);
  const size_t step = hn::Lanes(d);
  size_t i = 0;
  for (; i + step <= elements; i += step)
    store<Element>(d, hn::Mul(load<Element>(d, from + i), by), to + i);
  if (i == elements) return;
  const auto rest = hn::Mul(load_first<Element>(d, from + i, elements - i), by);
  store_first<Element>(d, rest, to + i, elements - i);
}

template <class T>
T truncated(double value) {
  using Limits = std::numeric_limits<T>;
  // The upper limit of int64 is no double; the first one that does not fit is one above.
  if (value >= static_cast<double>(Limits::max())) return Limits::max();
  if (value <= static_cast<double>(Limits::min())) return Limits::min();
  return value == value ? static_cast<T>(value) : T{0};
}

template <class T>
void scale_integer(void* destination, const void* source, double factor, size_t elements) {
  const auto* from = static_cast<const std::byte*>(source);
  auto* to = static_cast<std::byte*>(destination);
  for (size_t i = 0; i < elements; ++i) {
    T value;
    std::memcpy(&value, from + i * sizeof(T), sizeof(T));
    value = truncated<T>(static_cast<double>(value) * factor);
    std::memcpy(to + i * sizeof(T), &value, sizeof(T));
  }
}

void scale_on_target(DType dtype, void* to, const void* from, double factor, size_t elements) {
  switch (dtype) {
    case DType::boolean:
    case DType::uint8:
      return scale_integer<uint8_t>(to, from, factor, elements);
    case DType::int8:
      return scale_integer<int8_t>(to, from, factor, elements);
    case DType::uint16:
      return scale_integer<uint16_t>(to, from, factor, elements);
    case DType::int16:
      return scale_integer<int16_t>(to, from, factor, elements);
    case DType::int32:
      return scale_integer<int32_t>(to, from, factor, elements);
    case DType::int64:
      return scale_integer<int64_t>(to, from, factor, elements);
    case DType::float16:
      return scale_floating<Float16>(to, from, factor, elements);
    case DType::float32:
      return scale_floating<Plain<float>>(to, from, factor, elements);
    case DType::float64:
      return scale_floating<Plain<double>>(to, from, factor, elements);
    case DType::bfloat16:
      return scale_floating<BFloat16>(to, from, factor, elements);
  }
  HVD_ASSERT(false);
}

}  // namespace hvd::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hvd::kernel {
namespace {

HWY_EXPORT(scale_on_target);

}  // namespace

void scale(DType dtype, void* destination, const void* source, double factor, size_t elements) {
  if (factor != 1.0) {
    HWY_DYNAMIC_DISPATCH(scale_on_target)(dtype, destination, source, factor, elements);
  } else if (destination != source) {  // a copy keeps every bit, also of 64-bit integers
    copy(destination, source, elements * element_bytes(dtype));
  }
}

}  // namespace hvd::kernel
#endif  // HWY_ONCE
