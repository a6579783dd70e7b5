// Compiled once per SIMD target by foreach_target.h, which includes this file again; the part that
// does not depend on the target comes last.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

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

/// Computes v / divisor * factor, in lanes. For powers of two, both are one multiplication.
template <class D>
class Scaler {
 public:
  using V = hn::Vec<D>;
  explicit HWY_INLINE Scaler(const Scaling& scaling)
      : divides_(!std::has_single_bit(static_cast<unsigned>(scaling.divisor))),
        divisor_(static_cast<Lane>(scaling.divisor)),
        factor_(static_cast<Lane>(divides_ ? scaling.factor : scaling.factor / scaling.divisor)) {}
  HWY_INLINE V operator()(V value) const {
    const D d;
    if (divides_) value = hn::Div(value, hn::Set(d, divisor_));
    return hn::Mul(value, hn::Set(d, factor_));
  }

 private:
  using Lane = hn::TFromD<D>;
  bool divides_;
  Lane divisor_, factor_;
};

template <class Element>
void scale_floating(void* destination, const void* source, const Scaling& scaling,
                    size_t elements) {
  using Stored = typename Element::Stored;
  const hn::ScalableTag<typename Element::Lane> d;
  const Scaler<decltype(d)> scaled(scaling);
  const auto* from = static_cast<const Stored*>(source);
  auto* to = static_cast<Stored*>(destination);
  const size_t step = hn::Lanes(d);
  size_t i = 0;
  for (; i + step <= elements; i += step)
    store<Element>(d, scaled(load<Element>(d, from + i)), to + i);
  if (i == elements) return;
  const auto rest = scaled(load_first<Element>(d, from + i, elements - i));
  store_first<Element>(d, rest, to + i, elements - i);
}

template <class T>
T truncated(double value) {
  using Limits = std::numeric_limits<T>;
  // The upper limit of int64 is not representable in double; the next double above it is the first
  // value that does not fit.
  if (value >= static_cast<double>(Limits::max())) return Limits::max();
  if (value <= static_cast<double>(Limits::min())) return Limits::min();
  return value == value ? static_cast<T>(value) : T{0};
}

template <class T, class Change>
void change_each(void* destination, const void* source, size_t elements, Change change) {
  const auto* from = static_cast<const std::byte*>(source);
  auto* to = static_cast<std::byte*>(destination);
  for (size_t i = 0; i < elements; ++i) {
    T value;
    std::memcpy(&value, from + i * sizeof(T), sizeof(T));
    value = change(value);
    std::memcpy(to + i * sizeof(T), &value, sizeof(T));
  }
}

/// Divides by an invariant number, truncating toward zero, with a multiplication and a shift
/// (Granlund and Montgomery, 1994). With magnitudes of up to 2^bits, and the divisor above 2^(log2
/// - 1) and at most 2^log2, the multiplier is 2^(bits + log2) / divisor, rounded up.
template <class Integer, class Magnitude, class Product>
class Divider {
 public:
  explicit Divider(int divisor)
      : shift_(kBits + std::bit_width(static_cast<unsigned>(divisor) - 1)),
        multiplier_(static_cast<Magnitude>(((Product{1} << shift_) + divisor - 1) / divisor)) {}

  HWY_INLINE Integer operator()(Integer value) const {
    const auto sign = static_cast<Magnitude>(value >> kBits);  // all ones if negative
    const auto magnitude = static_cast<Magnitude>((static_cast<Magnitude>(value) ^ sign) - sign);
    const auto quotient = static_cast<Magnitude>(Product{magnitude} * multiplier_ >> shift_);
    return static_cast<Integer>((quotient ^ sign) - sign);
  }

 private:
  static constexpr int kBits = 8 * sizeof(Integer) - 1;
  int shift_;
  Magnitude multiplier_;
};
using Divider32 = Divider<int32_t, uint32_t, uint64_t>;
__extension__ using Divider64 = Divider<int64_t, uint64_t, unsigned __int128>;

template <class T>
void scale_integer(void* destination, const void* source, const Scaling& scaling, size_t elements) {
  if (scaling.factor == 1.0) {
    const std::conditional_t<sizeof(T) == 8, Divider64, Divider32> divided(scaling.divisor);
    change_each<T>(destination, source, elements,
                   [=](T value) { return static_cast<T>(divided(value)); });
  } else {
    const double factor = scaling.factor, divisor = scaling.divisor;
    change_each<T>(destination, source, elements, [=](T value) {
      return truncated<T>(static_cast<double>(value) * factor / divisor);
    });
  }
}

void scale_on_target(DType dtype, void* to, const void* from, const Scaling& scaling,
                     size_t elements) {
  switch (dtype) {
    case DType::boolean:
    case DType::uint8:
      return scale_integer<uint8_t>(to, from, scaling, elements);
    case DType::int8:
      return scale_integer<int8_t>(to, from, scaling, elements);
    case DType::uint16:
      return scale_integer<uint16_t>(to, from, scaling, elements);
    case DType::int16:
      return scale_integer<int16_t>(to, from, scaling, elements);
    case DType::int32:
      return scale_integer<int32_t>(to, from, scaling, elements);
    case DType::int64:
      return scale_integer<int64_t>(to, from, scaling, elements);
    case DType::float16:
      return scale_floating<Float16>(to, from, scaling, elements);
    case DType::float32:
      return scale_floating<Plain<float>>(to, from, scaling, elements);
    case DType::float64:
      return scale_floating<Plain<double>>(to, from, scaling, elements);
    case DType::bfloat16:
      return scale_floating<BFloat16>(to, from, scaling, elements);
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

void scale(DType dtype, void* destination, const void* source, const Scaling& scaling,
           size_t elements) {
  HVD_ASSERT(scaling.divisor > 0);
  if (!scaling.changes_nothing()) {
    HWY_DYNAMIC_DISPATCH(scale_on_target)(dtype, destination, source, scaling, elements);
  } else if (destination != source) {  // a copy keeps every bit, also of 64-bit integers
    copy(destination, source, elements * element_bytes(dtype));
  }
}

}  // namespace hvd::kernel
#endif  // HWY_ONCE
