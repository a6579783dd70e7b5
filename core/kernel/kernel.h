// Element-wise arithmetic on host memory, with SIMD by Highway (dynamic dispatch: one binary serves
// every CPU). Pure functions; no allocation; any alignment.
#pragma once

#include <cstddef>
#include <span>

#include "core/base/dtype.h"

namespace hvd::kernel {

/// Maximum number of sources of one reduce().
inline constexpr size_t kMaxSources = 1024;

/// The final scaling of every element: division by `divisor`, then multiplication by `factor`.
struct Scaling {
  double factor = 1.0;
  int divisor = 1;
  bool changes_nothing() const { return factor == 1.0 && divisor == 1; }
};

struct ReduceOptions {
  /// For floating types, applied before the result is rounded.
  Scaling scaling{};
  /// For average: the number of contributions in each source (each source is their mean), at most
  /// 2^13 in total; empty: one each.
  std::span<const int> counts{};
  /// Memory that this core reads next, of the size of the result, or nullptr. Reductions of two
  /// half-type sources prefetch it: they are bound by conversions and leave memory bandwidth
  /// unused.
  const void* soon = nullptr;
};

/// destination[i] = sources[0][i] op sources[1][i] op ... in that order, scaled. float16 and
/// bfloat16 accumulate in float and are rounded once (to nearest even) at the end; integers wrap;
/// min and max of a NaN is NaN. For bool: sum and max are or, product and min are and.
/// `destination` may be one of the sources, or overlap none. Takes 1 to kMaxSources sources.
///
/// average, for floating types only: the mean of all contributions. float32 accumulates in float64,
/// and float64 in twice its precision. Two sources of equal counts are added and halved instead.
/// The mean of equal numbers is exactly that number.
void reduce(ReduceOp op, DType dtype, void* destination, std::span<const void* const> sources,
            size_t elements, const ReduceOptions& options = {});

/// destination[i] = source[i] scaled. Half types compute in float. Integers without a factor are
/// divided exactly and truncated toward zero. Integers with a factor compute in double; the result
/// is truncated toward zero (saturating). In place if the two are equal; otherwise they must not
/// overlap.
void scale(DType dtype, void* destination, const void* source, const Scaling& scaling,
           size_t elements);

/// Like memcpy, but not slowed down by unfavourable distances between source and destination
/// (docs/decisions/0026).
void copy(void* destination, const void* source, size_t bytes);

/// Like memcpy, for data that another core has stored last (pages.h).
void copy_from_peer(void* destination, const void* source, size_t bytes);

/// Like memcpy, with non-temporal stores, for data that this core does not read again soon. Other
/// threads see the data with any later store of this thread.
void copy_past_caches(void* destination, const void* source, size_t bytes);

/// Prefetches cache lines for writing, which this core will write soon. Does not wait and changes
/// no data. `memory` must be aligned to a cache line.
void fetch_for_writing(const void* memory, size_t bytes);

/// Convert float16 and bfloat16 to float (exact) and back (rounded to nearest even), for arithmetic
/// outside this module. `dtype` is one of the two; source and destination must not overlap.
void widen(DType dtype, float* destination, const void* source, size_t elements);
void narrow(DType dtype, void* destination, const float* source, size_t elements);

/// Fills with the neutral element: 0 for sum and adasum, 1 for product, the largest value for min,
/// the smallest for max (infinities for floating types).
void fill_neutral(ReduceOp op, DType dtype, void* destination, size_t elements);

}  // namespace hvd::kernel
