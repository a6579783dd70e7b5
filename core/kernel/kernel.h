// Arithmetic on host memory, one element type at a time, with SIMD by Highway (dynamic dispatch:
// one binary serves every CPU). Pure functions; no allocation; any alignment.
#pragma once

#include <cstddef>
#include <span>

#include "core/base/dtype.h"

namespace hvd::kernel {

/// Of one reduce().
inline constexpr size_t kMaxSources = 1024;

/// What is done to every number in the end: it is divided, then multiplied.
struct Scaling {
  double factor = 1.0;
  int divisor = 1;
  bool changes_nothing() const { return factor == 1.0 && divisor == 1; }
};

struct ReduceOptions {
  /// Of floating types applied before the result is rounded.
  Scaling scaling{};
  /// average: how many contributions each source is the mean of, all of them at most 2^13 together;
  /// empty: one each.
  std::span<const int> counts{};
  /// What this core reads next, as many bytes as the result has, or nullptr: two sources of a half
  /// type fetch it meanwhile, since their conversions leave the way to memory idle.
  const void* soon = nullptr;
};

/// destination[i] = sources[0][i] op sources[1][i] op ... in that order, scaled. float16 and
/// bfloat16 accumulate in float and are rounded once (to nearest even) at the end; integers wrap;
/// min and max of a NaN is NaN. For bool: sum and max are or, product and min are and.
/// `destination` may be one of the sources, or overlap none. Takes 1 to kMaxSources sources.
///
/// average, of floating types only: the mean of all contributions. float32 accumulates in float64
/// and float64 in twice its precision, but for two sources of equal counts, whose sum is halved: so
/// the mean of equal numbers is that number.
void reduce(ReduceOp op, DType dtype, void* destination, std::span<const void* const> sources,
            size_t elements, const ReduceOptions& options = {});

/// destination[i] = source[i] scaled. Half types compute in float. An integer is divided exactly
/// and truncated toward zero; with a factor the product and the quotient are of doubles, and what
/// comes of both is truncated toward zero (saturating). In place when the two are equal; else they
/// do not overlap.
void scale(DType dtype, void* destination, const void* source, const Scaling& scaling,
           size_t elements);

/// As memcpy, but no slower where the two lie at an unlucky distance (docs/decisions, 26).
void copy(void* destination, const void* source, size_t bytes);

/// As memcpy, for what another core has stored last (pages.h).
void copy_from_peer(void* destination, const void* source, size_t bytes);

/// As memcpy, by stores that leave the caches alone, for what this core does not read again soon.
/// Other threads see it by whatever this one stores afterwards.
void copy_past_caches(void* destination, const void* source, size_t bytes);

/// Asks other cores to give up the cache lines of so many bytes, which this one will write soon.
/// Does not wait, and changes nothing. `memory` begins a line.
void fetch_for_writing(const void* memory, size_t bytes);

/// float16 and bfloat16 to float (exact) and back (rounded to nearest even), for arithmetic that is
/// not here. `dtype` is one of the two; source and destination do not overlap.
void widen(DType dtype, float* destination, const void* source, size_t elements);
void narrow(DType dtype, void* destination, const float* source, size_t elements);

/// The element that changes nothing: 0 for sum and adasum, 1 for product, the largest value for
/// min, the smallest for max (infinities for floating types).
void fill_neutral(ReduceOp op, DType dtype, void* destination, size_t elements);

}  // namespace hvd::kernel
