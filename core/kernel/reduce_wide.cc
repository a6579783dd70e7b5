// Compiled once per SIMD target by foreach_target.h, which includes this file again; the part that
// does not depend on the target comes last. All targets give the same bits: where it matters,
// products are exact, so fused multiply-add makes no difference.
#include "core/kernel/reduce_wide.h"

#include <cstddef>
#include <cstdint>
#include <numeric>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernel/reduce_wide.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
//
#include "core/base/assert.h"
#include "core/kernel/lanes-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace hvd::kernel::HWY_NAMESPACE {

/// float32 in lanes of float64.
struct WideFloat {
  using Stored = float;
  using Lane = double;
  template <class D>
  static HWY_INLINE hn::Vec<D> widen(D d, hn::Vec<hn::Rebind<float, D>> stored) {
    return hn::PromoteTo(d, stored);
  }
  template <class D>
  static HWY_INLINE hn::Vec<hn::Rebind<float, D>> narrow(D, hn::Vec<D> lanes) {
    const hn::Rebind<float, D> narrow;
    // The scalar target's DemoteTo converts an infinity to the largest number.
    if constexpr (HWY_TARGET == HWY_SCALAR)
      return hn::Set(narrow, static_cast<float>(hn::GetLane(lanes)));
    else
      return hn::DemoteTo(narrow, lanes);
  }
};

/// The final factor.
template <class Lane>
HWY_INLINE Lane factor_of(const Scaling& scaling) {
  return static_cast<Lane>(scaling.factor / scaling.divisor);
}

/// The accumulators below keep a State per vector of the result. `weight` is the count of the
/// source, in every lane.
template <class D>
class Sums {
 public:
  using V = hn::Vec<D>;
  using State = V;
  static constexpr size_t kAtOnce = 4;  ///< vectors of the result kept in registers

  explicit HWY_INLINE Sums(const Scaling& scaling) : factor_(factor_of<Lane>(scaling)) {}
  /// Lanes have enough spare bits for a count, so that the products are exact.
  HWY_INLINE State begin(V value, V weight) const { return hn::Mul(value, weight); }
  HWY_INLINE State add(State sum, V value, V weight) const {
    return hn::MulAdd(value, weight, sum);
  }
  HWY_INLINE V end(State sum) const { return hn::Mul(sum, hn::Set(D(), factor_)); }

 private:
  using Lane = hn::TFromD<D>;
  Lane factor_;
};

/// Ignores counts.
template <class D>
class Products {
 public:
  using V = hn::Vec<D>;
  using State = V;
  static constexpr size_t kAtOnce = 4;

  explicit HWY_INLINE Products(const Scaling& scaling) : factor_(factor_of<Lane>(scaling)) {}
  HWY_INLINE State begin(V value, V) const { return value; }
  HWY_INLINE State add(State product, V value, V) const { return hn::Mul(product, value); }
  HWY_INLINE V end(State product) const { return hn::Mul(product, hn::Set(D(), factor_)); }

 private:
  using Lane = hn::TFromD<D>;
  Lane factor_;
};

/// Compensated sums of float64: rounding errors are added up separately (TwoSum; Knuth, The Art of
/// Computer Programming 2, 4.2.2), and the quotient is corrected by its remainder.
template <class D>
class ExactSums {
 public:
  using V = hn::Vec<D>;
  struct State {
    V sum, lost;
  };
  static constexpr size_t kAtOnce = 2;

  explicit HWY_INLINE ExactSums(const Scaling& scaling)
      : factor_(scaling.factor), divisor_(scaling.divisor) {}

  HWY_INLINE State begin(V value, V weight) const {
    const V product = hn::Mul(value, weight);
    return {product, difference(value, weight, product)};
  }
  HWY_INLINE State add(State state, V value, V weight) const {
    const V product = hn::Mul(value, weight);
    const V sum = hn::Add(state.sum, product);
    const V added = hn::Sub(sum, state.sum);
    const V lost = hn::Add(hn::Sub(state.sum, hn::Sub(sum, added)), hn::Sub(product, added));
    return {sum, hn::Add(state.lost, hn::Add(lost, difference(value, weight, product)))};
  }
  HWY_INLINE V end(State state) const {
    const D d;
    const V quotient = hn::Div(state.sum, hn::Set(d, divisor_));
    const V remainder = hn::Sub(state.lost, difference(quotient, hn::Set(d, divisor_), state.sum));
    const V corrected = hn::Add(quotient, hn::Mul(remainder, hn::Set(d, 1 / divisor_)));
    // Zero keeps its sign. The remainder of an infinity is NaN.
    const auto has_remainder = hn::Gt(hn::Abs(remainder), hn::Zero(d));
    return hn::Mul(hn::IfThenElse(has_remainder, corrected, quotient), hn::Set(d, factor_));
  }

 private:
  /// Returns value * weight - product, with product close to value * weight. Exact: a weight has
  /// fewer bits than the lower half of a value.
  static HWY_INLINE V difference(V value, V weight, V product) {
    const hn::RebindToUnsigned<D> bits;
    const auto upper_bits = hn::Set(bits, ~uint64_t{0} << 27);
    const V upper = hn::BitCast(D(), hn::And(hn::BitCast(bits, value), upper_bits));
    const V lower = hn::Sub(value, upper);
    return hn::Add(hn::Sub(hn::Mul(upper, weight), product), hn::Mul(lower, weight));
  }

  double factor_, divisor_;
};

/// The sources, and the number of contributions in each if not one.
template <class Element>
class Sources {
 public:
  using Stored = typename Element::Stored;
  Sources(std::span<const void* const> sources, std::span<const int> counts)
      : sources_(sources), counts_(counts) {}

  HWY_INLINE size_t size() const { return sources_.size(); }
  HWY_INLINE const Stored* from(size_t source, size_t index) const {
    return static_cast<const Stored*>(sources_[source]) + index;
  }
  template <class D>
  HWY_INLINE hn::Vec<D> weight(D d, size_t source) const {
    using Lane = typename Element::Lane;
    return hn::Set(d, counts_.empty() ? Lane{1} : static_cast<Lane>(counts_[source]));
  }

 private:
  std::span<const void* const> sources_;
  std::span<const int> counts_;
};

/// Reduces several vectors of every source at a time. Returns the number of elements processed.
template <class Element, class D, class Accumulator>
size_t reduce_most(D d, const Accumulator& accumulator, typename Element::Stored* target,
                   const Sources<Element>& sources, size_t elements) {
  constexpr size_t kAtOnce = Accumulator::kAtOnce;
  const size_t step = hn::Lanes(d);
  size_t at = 0;
  for (; at + kAtOnce * step <= elements; at += kAtOnce * step) {
    typename Accumulator::State states[kAtOnce];
    const auto first_weight = sources.weight(d, 0);
    for (size_t k = 0; k < kAtOnce; ++k)
      states[k] = accumulator.begin(load<Element>(d, sources.from(0, at + k * step)), first_weight);
    for (size_t i = 1; i < sources.size(); ++i) {
      const auto weight = sources.weight(d, i);
      for (size_t k = 0; k < kAtOnce; ++k)
        states[k] =
            accumulator.add(states[k], load<Element>(d, sources.from(i, at + k * step)), weight);
    }
    for (size_t k = 0; k < kAtOnce; ++k)
      store<Element>(d, accumulator.end(states[k]), target + at + k * step);
  }
  return at;
}

/// Reduces the remaining elements from `at` on.
template <class Element, class D, class Accumulator>
void reduce_rest(D d, const Accumulator& accumulator, typename Element::Stored* target,
                 const Sources<Element>& sources, size_t at, size_t elements) {
  for (; at < elements; at += hn::Lanes(d)) {
    const size_t count = HWY_MIN(hn::Lanes(d), elements - at);
    auto state =
        accumulator.begin(load_first<Element>(d, sources.from(0, at), count), sources.weight(d, 0));
    for (size_t i = 1; i < sources.size(); ++i)
      state = accumulator.add(state, load_first<Element>(d, sources.from(i, at), count),
                              sources.weight(d, i));
    store_first<Element>(d, accumulator.end(state), target + at, count);
  }
}

template <class Element, template <class D> class Accumulator>
void reduce_by(void* destination, std::span<const void* const> sources, size_t elements,
               const Scaling& scaling, std::span<const int> counts) {
  const hn::ScalableTag<typename Element::Lane> d;
  const Accumulator<decltype(d)> accumulator(scaling);
  auto* const target = static_cast<typename Element::Stored*>(destination);
  const Sources<Element> all(sources, counts);
  const size_t done = reduce_most(d, accumulator, target, all, elements);
  reduce_rest(d, accumulator, target, all, done, elements);
}

void reduce_wide_on_target(bool is_product, DType dtype, void* to,
                           std::span<const void* const> from, size_t elements,
                           const Scaling& scaling, std::span<const int> counts) {
  switch (dtype) {
    case DType::float16:
      return is_product ? reduce_by<Float16, Products>(to, from, elements, scaling, counts)
                        : reduce_by<Float16, Sums>(to, from, elements, scaling, counts);
    case DType::bfloat16:
      return is_product ? reduce_by<BFloat16, Products>(to, from, elements, scaling, counts)
                        : reduce_by<BFloat16, Sums>(to, from, elements, scaling, counts);
    case DType::float32:
      return is_product ? reduce_by<WideFloat, Products>(to, from, elements, scaling, counts)
                        : reduce_by<WideFloat, Sums>(to, from, elements, scaling, counts);
    case DType::float64:
      return is_product ? reduce_by<Plain<double>, Products>(to, from, elements, scaling, counts)
                        : reduce_by<Plain<double>, ExactSums>(to, from, elements, scaling, counts);
    default:
      HVD_ASSERT(false);
  }
}

}  // namespace hvd::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hvd::kernel {
namespace {

HWY_EXPORT(reduce_wide_on_target);

}  // namespace

void reduce_wide(ReduceOp op, DType dtype, void* destination, std::span<const void* const> sources,
                 size_t elements, const ReduceOptions& options) {
  Scaling scaling = options.scaling;
  std::span<const int> counts;  // for a sum, each source is one addend
  if (op == ReduceOp::average) {
    counts = options.counts;
    scaling.divisor *= counts.empty() ? static_cast<int>(sources.size())
                                      : std::reduce(counts.begin(), counts.end());
  }
  HWY_DYNAMIC_DISPATCH(reduce_wide_on_target)
  (op == ReduceOp::product, dtype, destination, sources, elements, scaling, counts);
}

}  // namespace hvd::kernel
#endif  // HWY_ONCE
