// Loads elements of each type into SIMD lanes and stores them: half types as float lanes, other
// types unchanged. Included once per SIMD target, between HWY_BEFORE_NAMESPACE and
// HWY_AFTER_NAMESPACE of the includer, hence the toggled include guard that Highway requires.
#if defined(HVD_KERNEL_LANES_TOGGLE) == defined(HWY_TARGET_TOGGLE)
#ifdef HVD_KERNEL_LANES_TOGGLE
#undef HVD_KERNEL_LANES_TOGGLE
#else
#define HVD_KERNEL_LANES_TOGGLE
#endif

#include <cstdint>
#include <cstring>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace hvd::kernel::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Elements stored as lanes without conversion.
template <class T>
struct Plain {
  using Stored = T;
  using Lane = T;
  template <class D>
  static HWY_INLINE hn::Vec<D> widen(D, hn::Vec<hn::Rebind<T, D>> stored) {
    return stored;
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> narrow(D, hn::Vec<D> lanes) {
    return lanes;
  }
};

/// IEEE 754 binary16: exact, subnormals included; rounded to nearest even. A NaN stays a NaN
/// (quieted, with the upper bits of its payload, as in hardware).
struct Float16 {
  using Stored = uint16_t;
  using Lane = float;

  // F16C, AVX-512 and NEON convert in hardware, by the same rules.
  static constexpr bool kHardware =
      (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2) || HWY_TARGET == HWY_NEON;

  template <class D>
  static HWY_INLINE hn::Vec<D> widen(D d, hn::Vec<hn::Rebind<uint16_t, D>> stored) {
    if constexpr (kHardware) {
      return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), stored));
    } else {
      return widen_by_integers(d, stored);
    }
  }
  template <class D>
  static HWY_INLINE hn::Vec<hn::Rebind<uint16_t, D>> narrow(D d, hn::Vec<D> lanes) {
    if constexpr (kHardware) {
      const hn::Rebind<hwy::float16_t, D> d16;
      return hn::BitCast(hn::Rebind<uint16_t, D>(), hn::DemoteTo(d16, lanes));
    } else {
      return narrow_by_integers(d, lanes);
    }
  }

 private:
  template <class D>
  static HWY_INLINE hn::Vec<D> widen_by_integers(D d, hn::Vec<hn::Rebind<uint16_t, D>> stored) {
    const hn::RebindToUnsigned<D> du;
    const auto bits = hn::PromoteTo(du, stored);
    const auto magnitude = hn::ShiftLeft<13>(hn::And(bits, hn::Set(du, 0x7fff)));
    const auto exponent = hn::And(magnitude, hn::Set(du, 0x7c00u << 13));
    const auto normal = hn::Add(magnitude, hn::Set(du, (127u - 15u) << 23));
    // Infinity and NaN: replace the exponent by the largest exponent of float.
    auto special = hn::Or(magnitude, hn::Set(du, 0x7f800000u));
    special = hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, 0x7c00u << 13)),
                             hn::Or(special, hn::Set(du, 0x00400000u)), special);
    // Subnormal: place the mantissa behind a one at 2^-14, then subtract that one in float.
    const auto one = hn::Set(du, (127u - 14u) << 23);
    const auto subnormal =
        hn::BitCast(du, hn::Sub(hn::BitCast(d, hn::Or(magnitude, one)), hn::BitCast(d, one)));
    auto result = hn::IfThenElse(hn::Eq(exponent, hn::Zero(du)), subnormal, normal);
    result = hn::IfThenElse(hn::Eq(exponent, hn::Set(du, 0x7c00u << 13)), special, result);
    const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000)));
    return hn::BitCast(d, hn::Or(result, sign));
  }

  template <class D>
  static HWY_INLINE hn::Vec<hn::Rebind<uint16_t, D>> narrow_by_integers(D d, hn::Vec<D> lanes) {
    const hn::RebindToUnsigned<D> du;
    const auto all = hn::BitCast(du, lanes);
    const auto sign = hn::And(all, hn::Set(du, 0x80000000u));
    const auto bits = hn::Xor(all, sign);
    // Normal: rebias, add just under half of the last place, plus one if that place is odd.
    const auto odd = hn::And(hn::ShiftRight<13>(bits), hn::Set(du, 1));
    const auto rebias = hn::Set(du, 0xfffu - ((127u - 15u) << 23));
    const auto normal = hn::ShiftRight<13>(hn::Add(hn::Add(bits, rebias), odd));
    // Subnormal: adding 2^-1 in float shifts the mantissa into place and rounds it to nearest even.
    const auto magic = hn::Set(du, (127u - 15u + 23u - 10u + 1u) << 23);
    const auto shifted = hn::Add(hn::BitCast(d, bits), hn::BitCast(d, magic));
    const auto subnormal = hn::Sub(hn::BitCast(du, shifted), magic);
    const auto nan =
        hn::Or(hn::Set(du, 0x7e00u), hn::And(hn::ShiftRight<13>(bits), hn::Set(du, 0x3ffu)));
    const auto infinity = hn::Set(du, 0x7c00u);
    auto result = hn::IfThenElse(hn::Lt(bits, hn::Set(du, (127u - 14u) << 23)), subnormal, normal);
    // From 65520 on, halfway to the next power of two, everything rounds to infinity.
    result = hn::IfThenElse(hn::Lt(bits, hn::Set(du, 0x477ff000u)), result, infinity);
    result = hn::IfThenElse(hn::Gt(bits, hn::Set(du, 0x7f800000u)), nan, result);
    result = hn::Or(result, hn::ShiftRight<16>(sign));
    return hn::DemoteTo(hn::Rebind<uint16_t, D>(), hn::BitCast(hn::RebindToSigned<D>(), result));
  }
};

/// bfloat16: the upper half of a float, rounded to nearest even; a NaN stays one.
struct BFloat16 {
  using Stored = uint16_t;
  using Lane = float;

  template <class D>
  static HWY_INLINE hn::Vec<D> widen(D d, hn::Vec<hn::Rebind<uint16_t, D>> stored) {
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(hn::RebindToUnsigned<D>(), stored)));
  }
  template <class D>
  static HWY_INLINE hn::Vec<hn::Rebind<uint16_t, D>> narrow(D, hn::Vec<D> lanes) {
    const hn::RebindToUnsigned<D> du;
    const auto bits = hn::BitCast(du, lanes);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
    const auto rounded = hn::Add(hn::Add(bits, hn::Set(du, 0x7fff)), odd);
    const auto nan = hn::Or(bits, hn::Set(du, 0x00400000u));
    const auto is_nan = hn::RebindMask(du, hn::IsNaN(lanes));
    const auto result = hn::ShiftRight<16>(hn::IfThenElse(is_nan, nan, rounded));
    return hn::DemoteTo(hn::Rebind<uint16_t, D>(), hn::BitCast(hn::RebindToSigned<D>(), result));
  }

#if HWY_TARGET != HWY_SCALAR  // the scalar target has no pairs
  /// Narrows two vectors at once: elements of `even` go into the lower half of each lane, elements
  /// of `odd` into the upper half. No data crosses lanes, unlike when narrowing a single vector.
  /// The inputs must be results of arithmetic on bfloat16: then the lower half of a NaN is zero, so
  /// that rounding keeps it a NaN.
  ///
  /// Not used: the CPU instruction VCVTNE2PS2BF16, which flushes subnormals to zero. Handling these
  /// separately is slower than this code (docs/decisions/0027).
  template <class D>
  static HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> narrow_pairs(D, hn::Vec<D> even,
                                                                  hn::Vec<D> odd) {
    const hn::RebindToUnsigned<D> pairs;
    const hn::Repartition<uint16_t, D> halves;
    const auto even_bits = hn::BitCast(pairs, even), odd_bits = hn::BitCast(pairs, odd);
    const auto kept = hn::OddEven(hn::BitCast(halves, odd_bits),
                                  hn::BitCast(halves, hn::ShiftRight<16>(even_bits)));
    const auto lost = hn::OddEven(hn::BitCast(halves, hn::ShiftLeft<16>(odd_bits)),
                                  hn::BitCast(halves, even_bits));
    // Round up if the lost part is more than 0x8000, or equal to it and the kept part is odd.
    const auto one_if_even = hn::AndNot(kept, hn::Set(halves, 1));
    const auto up = hn::ShiftRight<15>(hn::SaturatedSub(lost, one_if_even));
    return hn::BitCast(pairs, hn::Add(kept, up));
  }
#endif
};

/// Loads the first `count` elements only; the other lanes are zero.
template <class Element, class D>
HWY_INLINE hn::Vec<D> load_first(D d, const typename Element::Stored* from, size_t count) {
  using Stored = typename Element::Stored;
  HWY_ALIGN Stored buffer[hn::MaxLanes(D())] = {};
  std::memcpy(buffer, from, count * sizeof(Stored));
  return Element::widen(d, hn::Load(hn::Rebind<Stored, D>(), buffer));
}

template <class Element, class D>
HWY_INLINE void store_first(D d, hn::Vec<D> lanes, typename Element::Stored* to, size_t count) {
  using Stored = typename Element::Stored;
  HWY_ALIGN Stored buffer[hn::MaxLanes(D())];
  hn::Store(Element::narrow(d, lanes), hn::Rebind<Stored, D>(), buffer);
  std::memcpy(to, buffer, count * sizeof(Stored));
}

// At any alignment. The LoadU of the scalar target would read through a misaligned pointer.
template <class Element, class D>
HWY_INLINE hn::Vec<D> load(D d, const typename Element::Stored* from) {
  if constexpr (HWY_TARGET == HWY_SCALAR)
    return load_first<Element>(d, from, 1);
  else
    return Element::widen(d, hn::LoadU(hn::Rebind<typename Element::Stored, D>(), from));
}

template <class Element, class D>
HWY_INLINE void store(D d, hn::Vec<D> lanes, typename Element::Stored* to) {
  if constexpr (HWY_TARGET == HWY_SCALAR)
    store_first<Element>(d, lanes, to, 1);
  else
    hn::StoreU(Element::narrow(d, lanes), hn::Rebind<typename Element::Stored, D>(), to);
}

}  // namespace hvd::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // the toggled guard
