// Compiled once per SIMD target by foreach_target.h, which includes this file again; the part that
// does not depend on the target comes last.
#include <cstddef>
#include <cstdint>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernel/reduce.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
//
#include "core/base/assert.h"
#include "core/base/bytes.h"
#include "core/kernel/kernel.h"
#include "core/kernel/lanes-inl.h"
#include "core/kernel/pages.h"
#include "core/kernel/reduce_wide.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace hvd::kernel::HWY_NAMESPACE {

struct Sum {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V combine(D, V a, V b) {
    return hn::Add(a, b);
  }
};

/// a * 1 + b, rounded once, like a + b. On Zen 3, additions share execution ports with float16
/// conversions and multiplications do not, which makes this faster (docs/decisions/0027). GCC 12
/// does not remove the multiplication.
struct SumByMultipliers {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V combine(D d, V a, V b) {
    return hn::MulAdd(a, hn::Set(d, 1), b);
  }
};

/// The mean of two sources.
struct Mean {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V combine(D d, V a, V b) {
    return hn::Mul(hn::Add(a, b), hn::Set(d, static_cast<hn::TFromD<D>>(0.5)));
  }
};

// Min and max give the same result on every CPU, also for zeros of different sign; a NaN on either
// side propagates.
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
  // Some targets have no multiplication of 8-bit and 64-bit lanes.
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

/// Computes one vector of the result, in the order of the sources.
template <class Element, class Op, class D>
HWY_INLINE hn::Vec<D> combine_at(D d, const void* const* sources, size_t count, size_t index) {
  using Stored = typename Element::Stored;
  auto result = load<Element>(d, static_cast<const Stored*>(sources[0]) + index);
  for (size_t i = 1; i < count; ++i)
    result =
        Op::combine(d, result, load<Element>(d, static_cast<const Stored*>(sources[i]) + index));
  return result;
}

/// Handles the remaining elements, fewer than a vector.
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

/// A block is the amount that the loops below load, combine and store at once: here one vector.
template <class Element, class D>
class OneVector {
 public:
  using Stored = typename Element::Stored;
  using Block = hn::Vec<D>;
  static constexpr size_t kAtOnce = 4;  ///< blocks of the result kept in registers
  static constexpr bool kConverts = !std::is_same_v<Stored, typename Element::Lane>;

  explicit HWY_INLINE OneVector(D) {}
  static size_t elements() { return hn::Lanes(D()); }
  HWY_INLINE Block load(const Stored* from) const {
    return HWY_NAMESPACE::load<Element>(D(), from);
  }
  template <class Op>
  HWY_INLINE Block combine(Block a, Block b) const {
    return Op::combine(D(), a, b);
  }
  HWY_INLINE void store(Block block, Stored* to) const {
    HWY_NAMESPACE::store<Element>(D(), block, to);
  }
};

#if HWY_TARGET != HWY_SCALAR  // the scalar target has no pairs
/// A block of bfloat16 is two vectors of float: the even elements, shifted up, and the odd
/// elements, with the lower half cleared.
template <class D>
class TwoVectors {
 public:
  using Stored = uint16_t;
  struct Block {
    hn::Vec<D> even, odd;
  };
  static constexpr size_t kAtOnce = 2;
  static constexpr bool kConverts = true;

  explicit HWY_INLINE TwoVectors(D) {}
  static size_t elements() { return 2 * hn::Lanes(D()); }
  HWY_INLINE Block load(const Stored* from) const {
    const D d;
    const auto both = hn::BitCast(kPairs, hn::LoadU(kStored, from));
    const auto upper_half = hn::Set(kPairs, 0xffff0000u);
    return {hn::BitCast(d, hn::ShiftLeft<16>(both)), hn::BitCast(d, hn::And(both, upper_half))};
  }
  template <class Op>
  HWY_INLINE Block combine(Block a, Block b) const {
    return {Op::combine(D(), a.even, b.even), Op::combine(D(), a.odd, b.odd)};
  }
  HWY_INLINE void store(Block block, Stored* to) const {
    const auto narrow = BFloat16::narrow_pairs(D(), block.even, block.odd);
    hn::StoreU(hn::BitCast(kStored, narrow), kStored, to);
  }

 private:
  static constexpr hn::RebindToUnsigned<D> kPairs{};
  static constexpr hn::Repartition<Stored, D> kStored{};
};
#endif

/// Reduces two sources by whole rows of pages (pages.h). Returns the number of elements processed.
template <class Op, class Blocks>
size_t combine_two_by_pages(const Blocks& blocks, typename Blocks::Stored* target,
                            const typename Blocks::Stored* a, const typename Blocks::Stored* b,
                            size_t elements) {
  constexpr size_t page = kPageBytes / sizeof(typename Blocks::Stored);
  size_t done = 0;
  for (; done + kPagesAtOnce * page <= elements; done += kPagesAtOnce * page) {
    for (size_t i = done; i < done + page; i += Blocks::elements()) {
      // All loads come first: a load stalls behind an earlier store whose address has the same low
      // bits.
      typename Blocks::Block results[kPagesAtOnce];
      for (size_t k = 0; k < kPagesAtOnce; ++k)
        results[k] = blocks.template combine<Op>(blocks.load(a + i + k * page),
                                                 blocks.load(b + i + k * page));
      for (size_t k = 0; k < kPagesAtOnce; ++k) blocks.store(results[k], target + i + k * page);
    }
  }
  return done;
}

/// Prefetches the cache lines of these bytes.
HWY_INLINE void fetch(const std::byte* from, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kCacheLine) __builtin_prefetch(from + at);
}

/// Reduces two sources, the common case: pointers stay in registers. Returns the number of elements
/// processed.
template <class Op, class Blocks>
size_t combine_two(const Blocks& blocks, typename Blocks::Stored* target,
                   const void* const* sources, size_t elements, const std::byte* soon) {
  using Stored = typename Blocks::Stored;
  const auto* a = static_cast<const Stored*>(sources[0]);
  const auto* b = static_cast<const Stored*>(sources[1]);
  const size_t step = Blocks::elements();
  const bool is_long = elements >= kPagesAtOnce * kPageBytes / sizeof(Stored);
  const bool by_pages = is_long && goes_by_pages(hn::Lanes(hn::ScalableTag<uint8_t>()));
  size_t i = by_pages ? combine_two_by_pages<Op>(blocks, target, a, b, elements) : 0;
  for (; i + 2 * step <= elements; i += 2 * step) {
    if constexpr (Blocks::kConverts) {
      if (soon != nullptr) fetch(soon + i * sizeof(Stored), 2 * step * sizeof(Stored));
    }
    const auto first = blocks.template combine<Op>(blocks.load(a + i), blocks.load(b + i));
    const auto second =
        blocks.template combine<Op>(blocks.load(a + i + step), blocks.load(b + i + step));
    blocks.store(first, target + i);
    blocks.store(second, target + i + step);
  }
  return i;
}

/// Reduces several blocks of every source at a time: accumulators stay in registers and every
/// fetched cache line is fully used. Returns the number of elements processed.
template <class Op, class Blocks>
size_t combine_many(const Blocks& blocks, typename Blocks::Stored* target,
                    const void* const* sources, size_t count, size_t elements) {
  using Stored = typename Blocks::Stored;
  constexpr size_t kAtOnce = Blocks::kAtOnce;
  const size_t step = Blocks::elements();
  size_t at = 0;
  for (; at + kAtOnce * step <= elements; at += kAtOnce * step) {
    const auto* from = static_cast<const Stored*>(sources[0]) + at;
    typename Blocks::Block results[kAtOnce];
    for (size_t k = 0; k < kAtOnce; ++k) results[k] = blocks.load(from + k * step);
    for (size_t i = 1; i < count; ++i) {
      from = static_cast<const Stored*>(sources[i]) + at;
      for (size_t k = 0; k < kAtOnce; ++k)
        results[k] = blocks.template combine<Op>(results[k], blocks.load(from + k * step));
    }
    for (size_t k = 0; k < kAtOnce; ++k) blocks.store(results[k], target + at + k * step);
  }
  return at;
}

/// Reduces the elements that fill groups of several blocks; the rest is left.
template <class Op, class Blocks>
size_t combine_blocks(const Blocks& blocks, typename Blocks::Stored* target,
                      const void* const* sources, size_t count, size_t elements,
                      const std::byte* soon) {
  if (count == 2) return combine_two<Op>(blocks, target, sources, elements, soon);
  return combine_many<Op>(blocks, target, sources, count, elements);
}

/// Like combine_blocks(), with the block type of the element type.
template <class Element, class Op, class D>
size_t combine_most(D d, typename Element::Stored* target, const void* const* sources, size_t count,
                    size_t elements, const std::byte* soon) {
#if HWY_TARGET == HWY_SCALAR
  return combine_blocks<Op>(OneVector<Element, D>(d), target, sources, count, elements, soon);
#else
  if constexpr (!std::is_same_v<Element, BFloat16>) {
    return combine_blocks<Op>(OneVector<Element, D>(d), target, sources, count, elements, soon);
  } else {
    return combine_blocks<Op>(TwoVectors<D>(d), target, sources, count, elements, soon);
  }
#endif
}

template <class Element, class Op>
void combine(void* destination, const void* const* sources, size_t count, size_t elements,
             const void* soon) {
  using Stored = typename Element::Stored;
  const hn::ScalableTag<typename Element::Lane> d;
  auto* target = static_cast<Stored*>(destination);
  size_t i = combine_most<Element, Op>(d, target, sources, count, elements,
                                       static_cast<const std::byte*>(soon));
  for (const size_t step = hn::Lanes(d); i + step <= elements; i += step)
    store<Element>(d, combine_at<Element, Op>(d, sources, count, i), target + i);
  if (i < elements) combine_rest<Element, Op>(d, target, sources, count, i, elements);
}

// Sums and products of integers wrap, so unsigned lanes give the same bits.
template <class Element>
struct Wrapping {
  using Type = Element;
};
template <class T>
requires std::is_integral_v<T>
struct Wrapping<Plain<T>> {
  using Type = Plain<std::make_unsigned_t<T>>;
};

// Integer conversions leave the floating-point adders free.
template <class Element>
struct Summing {
  using Type = Sum;
};
template <>
struct Summing<Float16> {
  using Type = std::conditional_t<Float16::kHardware, SumByMultipliers, Sum>;
};

template <class Element>
void reduce_by(ReduceOp op, void* destination, const void* const* sources, size_t count,
               size_t elements, const void* soon) {
  using Wraps = typename Wrapping<Element>::Type;
  switch (op) {
    case ReduceOp::average:
      if constexpr (hwy::IsFloat<typename Element::Lane>())
        return combine<Element, Mean>(destination, sources, count, elements, soon);
      break;
    case ReduceOp::sum:
      return combine<Wraps, typename Summing<Element>::Type>(destination, sources, count, elements,
                                                             soon);
    case ReduceOp::min:
      return combine<Element, Min>(destination, sources, count, elements, soon);
    case ReduceOp::max:
      return combine<Element, Max>(destination, sources, count, elements, soon);
    case ReduceOp::product:
      return combine<Wraps, Product>(destination, sources, count, elements, soon);
    case ReduceOp::adasum:
      break;
  }
  HVD_ASSERT(false);
}

void reduce_on_target(ReduceOp op, DType dtype, void* to, const void* const* from, size_t count,
                      size_t elements, const void* soon) {
  switch (dtype) {
    case DType::boolean:
    case DType::uint8:
      return reduce_by<Plain<uint8_t>>(op, to, from, count, elements, soon);
    case DType::int8:
      return reduce_by<Plain<int8_t>>(op, to, from, count, elements, soon);
    case DType::uint16:
      return reduce_by<Plain<uint16_t>>(op, to, from, count, elements, soon);
    case DType::int16:
      return reduce_by<Plain<int16_t>>(op, to, from, count, elements, soon);
    case DType::int32:
      return reduce_by<Plain<int32_t>>(op, to, from, count, elements, soon);
    case DType::int64:
      return reduce_by<Plain<int64_t>>(op, to, from, count, elements, soon);
    case DType::float16:
      return reduce_by<Float16>(op, to, from, count, elements, soon);
    case DType::float32:
      return reduce_by<Plain<float>>(op, to, from, count, elements, soon);
    case DType::float64:
      return reduce_by<Plain<double>>(op, to, from, count, elements, soon);
    case DType::bfloat16:
      return reduce_by<BFloat16>(op, to, from, count, elements, soon);
  }
  HVD_ASSERT(false);
}

}  // namespace hvd::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hvd::kernel {
namespace {

HWY_EXPORT(reduce_on_target);

// A sum of booleans is true if one of them is, a product if all are.
ReduceOp boolean_op(ReduceOp op) {
  const bool all = op == ReduceOp::min || op == ReduceOp::product;
  return all ? ReduceOp::min : ReduceOp::max;
}

/// The mean of two numbers of equal weight is half of their sum.
bool is_plain_mean(size_t sources, const ReduceOptions& options) {
  const auto& counts = options.counts;
  return sources == 2 && options.scaling.changes_nothing() &&
         (counts.empty() || counts[0] == counts[1]);
}

/// Returns whether the result needs more precision before rounding. Min and max are exact.
bool needs_more_precision(ReduceOp op, DType dtype, size_t sources, const ReduceOptions& options) {
  if (op == ReduceOp::average) return !is_plain_mean(sources, options);
  return is_floating(dtype) && (op == ReduceOp::sum || op == ReduceOp::product) &&
         !options.scaling.changes_nothing();
}

}  // namespace

void reduce(ReduceOp op, DType dtype, void* destination, std::span<const void* const> sources,
            size_t elements, const ReduceOptions& options) {
  HVD_ASSERT(!sources.empty() && sources.size() <= kMaxSources);
  HVD_ASSERT(op != ReduceOp::average || is_floating(dtype));
  if (needs_more_precision(op, dtype, sources.size(), options))
    return reduce_wide(op, dtype, destination, sources, elements, options);
  if (dtype == DType::boolean) op = boolean_op(op);
  HWY_DYNAMIC_DISPATCH(reduce_on_target)
  (op, dtype, destination, sources.data(), sources.size(), elements, options.soon);
  scale(dtype, destination, destination, options.scaling, elements);
}

}  // namespace hvd::kernel
#endif  // HWY_ONCE
