// Reduces the memory of several ranks, in the order of the sources. Floating types are computed in
// their wide type and rounded once, to nearest even. Integers wrap around and are not scaled.
//
// A thread reads 16 bytes of each source at a time. Compiled like copy_scale.cu.
#include "core/device/kernels/numbers.h"
#include "core/device/kernels/sources.h"

namespace hvd::device {

template <class Number>
struct Floating : Number {
  typedef typename Number::Wide Wide;
  HVD_DEVICE Wide scaled_before(Wide value, const ReduceScaling& by) {
    return value * static_cast<Wide>(by.before);
  }
  HVD_DEVICE Wide scaled_after(Wide value, const ReduceScaling& by) {
    if (by.divisor != 1) value = value / static_cast<Wide>(by.divisor);
    return value * static_cast<Wide>(by.after);
  }
  HVD_DEVICE bool is_nan(Wide value) { return value != value; }
  HVD_DEVICE Wide plus(Wide one, Wide other) { return one + other; }
  HVD_DEVICE Wide times(Wide one, Wide other) { return one * other; }
};

/// `Unsigned`: the type in which results wrap around.
template <class T, class Unsigned>
struct Integer {
  typedef T Stored;
  typedef T Wide;
  HVD_DEVICE T widen(T value) { return value; }
  HVD_DEVICE T narrow(T value) { return value; }
  HVD_DEVICE T scaled_before(T value, const ReduceScaling&) { return value; }
  HVD_DEVICE T scaled_after(T value, const ReduceScaling&) { return value; }
  HVD_DEVICE bool is_nan(T) { return false; }
  HVD_DEVICE T plus(T one, T other) {
    return static_cast<T>(static_cast<Unsigned>(one) + static_cast<Unsigned>(other));
  }
  HVD_DEVICE T times(T one, T other) {
    return static_cast<T>(static_cast<Unsigned>(one) * static_cast<Unsigned>(other));
  }
};

template <class Number>
struct Reduction {
  typedef typename Number::Stored Stored;
  typedef typename Number::Wide Wide;

  /// A NaN remains one.
  template <Merge merge>
  HVD_DEVICE Wide merged(Wide one, Wide other) {
    if (merge == Merge::sum) return Number::plus(one, other);
    if (merge == Merge::product) return Number::times(one, other);
    const bool keeps = merge == Merge::min ? one < other : one > other;
    return keeps || Number::is_nan(one) ? one : other;
  }

  template <Merge merge, int kLanes>
  HVD_DEVICE void add(Wide (&sums)[kLanes], const Vector<Stored, kLanes>& read,
                      const ReduceScaling& by) {
#pragma unroll
    for (int k = 0; k < kLanes; ++k) {
      const Wide value = Number::scaled_before(Number::widen(read.lane[k]), by);
      sums[k] = merged<merge>(sums[k], value);
    }
  }

  template <int kLanes>
  HVD_DEVICE void add(Merge merge, Wide (&sums)[kLanes], const Vector<Stored, kLanes>& read,
                      const ReduceScaling& by) {
    switch (merge) {
      case Merge::sum:
        return add<Merge::sum>(sums, read, by);
      case Merge::min:
        return add<Merge::min>(sums, read, by);
      case Merge::max:
        return add<Merge::max>(sums, read, by);
      case Merge::product:
        return add<Merge::product>(sums, read, by);
    }
  }

  /// Reduces vectors `first` to `end`. Loops are not unrolled: the kernels would become large.
  template <int kLanes>
  HVD_DEVICE void vectors(const Sources& all, u64 first, u64 end, const ReduceScaling& by) {
    typedef Vector<Stored, kLanes> Lanes;
#pragma unroll 1
    for (u64 i = first + first_index(); i < end; i += index_step()) {
      Wide sums[kLanes];
      const Lanes own = static_cast<const Lanes*>(all.from[0])[i];
#pragma unroll
      for (int k = 0; k < kLanes; ++k)
        sums[k] = Number::scaled_before(Number::widen(own.lane[k]), by);
#pragma unroll 1
      for (u32 source = 1; source < all.sources; ++source)
        add(all.merge, sums, static_cast<const Lanes*>(all.from[source])[i], by);
      Lanes written;
#pragma unroll
      for (int k = 0; k < kLanes; ++k)
        written.lane[k] = Number::narrow(Number::scaled_after(sums[k], by));
      static_cast<Lanes*>(all.to)[i] = written;
    }
  }

  HVD_DEVICE void run(const Sources& all, const ReduceScaling& by) {
    constexpr int kLanes = 16 / sizeof(Stored);
    vectors<kLanes>(all, 0, all.count / kLanes, by);
    vectors<1>(all, all.count / kLanes * kLanes, all.count, by);
  }
};

typedef Integer<signed char, u32> Int8;
typedef Integer<unsigned char, u32> UInt8;
typedef Integer<int, u32> Int32;
typedef Integer<long long, u64> Int64;

}  // namespace hvd::device

using namespace hvd::device;

#define HVD_REDUCING_KERNEL(name, Number)                                      \
  HVD_KERNEL name(HVD_ARGUMENT(Sources) all, HVD_ARGUMENT(ReduceScaling) by) { \
    Reduction<Number>::run(all, by);                                           \
  }
HVD_REDUCING_KERNEL(hvd_reduce_f32, Floating<Float32>)
HVD_REDUCING_KERNEL(hvd_reduce_f64, Floating<Float64>)
HVD_REDUCING_KERNEL(hvd_reduce_f16, Floating<Float16>)
HVD_REDUCING_KERNEL(hvd_reduce_bf16, Floating<BFloat16>)
HVD_REDUCING_KERNEL(hvd_reduce_i8, Int8)
HVD_REDUCING_KERNEL(hvd_reduce_u8, UInt8)
HVD_REDUCING_KERNEL(hvd_reduce_i32, Int32)
HVD_REDUCING_KERNEL(hvd_reduce_i64, Int64)
