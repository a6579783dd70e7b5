// Compiled once for every SIMD target by foreach_target.h, which includes this file again; kernel.h
// and the choice between the targets come last, once.
#include <cstddef>
#include <cstdint>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernel/reduce.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
//
#include "core/base/assert.h"
#include "core/kernel/kernel.h"
#include "core/kernel/lanes-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace hvd::kernel::HWY_NAMESPACE {

struct Sum {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V combine(D, V a, V b) {
    return hn::Add(a, b);
  }
};

// Min and max decide alike on every CPU, also between zeros of different sign; a NaN on either side
// wins.
struct Min {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V combine(D, V a, V b) {
    if constexpr (hwy::IsFloat<hn::TFromD<D>>())
      return hn::IfThenElse(hn::Or(hn::Lt(b, a), hn::IsNaN(b)), b, a);
    else
      return hn::Min(a, b);
  }
};
struct Max {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V combine(D, V a, V b) {
    if constexpr (hwy::IsFloat<hn::TFromD<D>>())
      return hn::IfThenElse(hn::Or(hn::Lt(a, b), hn::IsNaN(b)), b, a);
    else
      return hn::Max(a, b);
  }
};

struct Product {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V combine(D d, V a, V b) {
    using T = hn::TFromD<D>;
    if constexpr (hwy::IsFloat<T>() || sizeof(T) == 2 || sizeof(T) == 4)
      return hn::Mul(a, b);
    else
      return lane_by_lane(d, a, b);
  }

 private:
  // Not every target multiplies 8 and 64 bits.
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V lane_by_lane(D d, V a, V b) {
    using T = hn::TFromD<D>;
    HWY_ALIGN T left[hn::MaxLanes(D())];
    HWY_ALIGN T right[hn::MaxLanes(D())];
    hn::Store(a, d, left);
    hn::Store(b, d, right);
    for (size_t i = 0; i < hn::Lanes(d); ++i) left[i] = static_cast<T>(left[i] * right[i]);
    return hn::Load(d, left);
  }
};

/// One vector of the result, in the order of the sources.
template <class Element, class Op, class D>
HWY_INLINE hn::Vec<D> combine_at(D d, const void* const* sources, size_t count, size_t index) {
  using Stored = typename Element::Stored;
  auto result = load<Element>(d, static_cast<const Stored*>(sources[0]) + index);
  for (size_t i = 1; i < count; ++i)
    result =
        Op::combine(d, result, load<Element>(d, static_cast<const Stored*>(sources[i]) + index));
  return result;
}

/// The last elements, fewer than a vector.
template <class Element, class Op, class D>
HWY_INLINE void combine_rest(D d, typename Element::Stored* target, const void* const* sources,
                             size_t count, size_t index, size_t elements) {
  using Stored = typename Element::Stored;
  auto result =
      load_first<Element>(d, static_cast<const Stored*>(sources[0]) + index, elements - index);
  for (size_t i = 1; i < count; ++i)
    result = Op::combine(
        d, result,
        load_first<Element>(d, static_cast<const Stored*>(sources[i]) + index, elements - index));
  store_first<Element>(d, result, target + index, elements - index);
}

/// Two sources, the usual case over links: pointers stay in registers.
template <class Element, class Op, class D>
size_t combine_two(D d, typename Element::Stored* target, const void* const* sources,
                   size_t elements) {
  using Stored = typename Element::Stored;
  const auto* a = static_cast<const Stored*>(sources[0]);
  const auto* b = static_cast<const Stored*>(sources[1]);
  const size_t step = hn::Lanes(d);
  size_t i = 0;
  for (; i + 2 * step <= elements; i += 2 * step) {
    const auto first = Op::combine(d, load<Element>(d, a + i), load<Element>(d, b + i));
    const auto second =
        Op::combine(d, load<Element>(d, a + i + step), load<Element>(d, b + i + step));
    store<Element>(d, first, target + i);
    store<Element>(d, second, target + i + step);
  }
  return i;
}

/// Four vectors of every source at a time: accumulators stay in registers, and every cache line
/// that is touched is used up.
template <class Element, class Op, class D>
size_t combine_many(D d, typename Element::Stored* target, const void* const* sources, size_t count,
                    size_t elements) {
  using Stored = typename Element::Stored;
  const size_t step = hn::Lanes(d);
  size_t at = 0;
  for (; at + 4 * step <= elements; at += 4 * step) {
    const auto* from = static_cast<const Stored*>(sources[0]) + at;
    auto r0 = load<Element>(d, from);
    auto r1 = load<Element>(d, from + step);
    auto r2 = load<Element>(d, from + 2 * step);
    auto r3 = load<Element>(d, from + 3 * step);
    for (size_t i = 1; i < count; ++i) {
      from = static_cast<const Stored*>(sources[i]) + at;
      r0 = Op::combine(d, r0, load<Element>(d, from));
      r1 = Op::combine(d, r1, load<Element>(d, from + step));
      r2 = Op::combine(d, r2, load<Element>(d, from + 2 * step));
      r3 = Op::combine(d, r3, load<Element>(d, from + 3 * step));
    }
    store<Element>(d, r0, target + at);
    store<Element>(d, r1, target + at + step);
    store<Element>(d, r2, target + at + 2 * step);
    store<Element>(d, r3, target + at + 3 * step);
  }
  return at;
}

#if HWY_TARGET != HWY_SCALAR  // which has no pairs
/// bfloat16 as pairs: the one of even place is shifted up to a float, the one of odd place is one
/// with its lower half cleared. `Pairs` narrows them.
template <class Op, class Pairs>
size_t combine_pairs(uint16_t* target, const void* const* sources, size_t count, size_t elements) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> pairs;
  const hn::Repartition<uint16_t, decltype(d)> stored;
  const auto upper_half = hn::Set(pairs, 0xffff0000u);
  const Pairs narrowing(d);
  const size_t step = hn::Lanes(stored);
  size_t at = 0;
  for (; at + step <= elements; at += step) {
    const auto load_pairs = [&](size_t source) HWY_ATTR {
      const auto* from = static_cast<const uint16_t*>(sources[source]) + at;
      return hn::BitCast(pairs, hn::LoadU(stored, from));
    };
    auto both = load_pairs(0);
    auto even = hn::BitCast(d, hn::ShiftLeft<16>(both));
    auto odd = hn::BitCast(d, hn::And(both, upper_half));
    for (size_t i = 1; i < count; ++i) {
      both = load_pairs(i);
      even = Op::combine(d, even, hn::BitCast(d, hn::ShiftLeft<16>(both)));
      odd = Op::combine(d, odd, hn::BitCast(d, hn::And(both, upper_half)));
    }
    hn::StoreU(hn::BitCast(stored, narrowing.narrow(d, even, odd)), stored, target + at);
  }
  return at;
}
#endif

/// As many elements as go by the shape that suits their type; the rest is left.
template <class Element, class Op, class D>
size_t combine_most(D d, typename Element::Stored* target, const void* const* sources, size_t count,
                    size_t elements) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (std::is_same_v<Element, BFloat16>) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
    if (PairsByInstruction<D>::are_available())
      return combine_pairs<Op, PairsByInstruction<D>>(target, sources, count, elements);
#endif
    return combine_pairs<Op, PairsByIntegers<D>>(target, sources, count, elements);
  }
#endif
  if (count == 2) return combine_two<Element, Op>(d, target, sources, elements);
  return combine_many<Element, Op>(d, target, sources, count, elements);
}

template <class Element, class Op>
void combine(void* destination, const void* const* sources, size_t count, size_t elements) {
  using Stored = typename Element::Stored;
  const hn::ScalableTag<typename Element::Lane> d;
  auto* target = static_cast<Stored*>(destination);
  size_t i = combine_most<Element, Op>(d, target, sources, count, elements);
  for (const size_t step = hn::Lanes(d); i + step <= elements; i += step)
    store<Element>(d, combine_at<Element, Op>(d, sources, count, i), target + i);
  if (i < elements) combine_rest<Element, Op>(d, target, sources, count, i, elements);
}

// Sums and products of integers wrap, which unsigned lanes do alike.
template <class Element>
struct Wrapping {
  using Type = Element;
};
template <class T>
requires std::is_integral_v<T>
struct Wrapping<Plain<T>> {
  using Type = Plain<std::make_unsigned_t<T>>;
};

template <class Element>
void reduce_by(ReduceOp op, void* destination, const void* const* sources, size_t count,
               size_t elements) {
  using Wraps = typename Wrapping<Element>::Type;
  switch (op) {
    case ReduceOp::average:
    case ReduceOp::sum:
      return combine<Wraps, Sum>(destination, sources, count, elements);
    case ReduceOp::min:
      return combine<Element, Min>(destination, sources, count, elements);
    case ReduceOp::max:
      return combine<Element, Max>(destination, sources, count, elements);
    case ReduceOp::product:
      return combine<Wraps, Product>(destination, sources, count, elements);
    case ReduceOp::adasum:
      break;
  }
  HVD_ASSERT(false);
}

void reduce_on_target(ReduceOp op, DType dtype, void* to, const void* const* from, size_t count,
                      size_t elements) {
  switch (dtype) {
    case DType::boolean:
    case DType::uint8:
      return reduce_by<Plain<uint8_t>>(op, to, from, count, elements);
    case DType::int8:
      return reduce_by<Plain<int8_t>>(op, to, from, count, elements);
    case DType::uint16:
      return reduce_by<Plain<uint16_t>>(op, to, from, count, elements);
    case DType::int16:
      return reduce_by<Plain<int16_t>>(op, to, from, count, elements);
    case DType::int32:
      return reduce_by<Plain<int32_t>>(op, to, from, count, elements);
    case DType::int64:
      return reduce_by<Plain<int64_t>>(op, to, from, count, elements);
    case DType::float16:
      return reduce_by<Float16>(op, to, from, count, elements);
    case DType::float32:
      return reduce_by<Plain<float>>(op, to, from, count, elements);
    case DType::float64:
      return reduce_by<Plain<double>>(op, to, from, count, elements);
    case DType::bfloat16:
      return reduce_by<BFloat16>(op, to, from, count, elements);
  }
  HVD_ASSERT(false);
}

}  // namespace hvd::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hvd::kernel {
namespace {

HWY_EXPORT(reduce_on_target);

// A sum of truth values is true when one of them is, a product when all are.
ReduceOp boolean_op(ReduceOp op) {
  const bool all = op == ReduceOp::min || op == ReduceOp::product;
  return all ? ReduceOp::min : ReduceOp::max;
}

}  // namespace

void reduce(ReduceOp op, DType dtype, void* destination, std::span<const void* const> sources,
            size_t elements) {
  HVD_ASSERT(!sources.empty() && sources.size() <= kMaxSources);
  if (dtype == DType::boolean) op = boolean_op(op);
  HWY_DYNAMIC_DISPATCH(reduce_on_target)
  (op, dtype, destination, sources.data(), sources.size(), elements);
}

}  // namespace hvd::kernel
#endif  // HWY_ONCE
