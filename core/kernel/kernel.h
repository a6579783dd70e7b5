// Arithmetic on host memory, one element type at a time, with SIMD by Highway (dynamic dispatch:
// one binary serves every CPU). Pure functions; no allocation; any alignment.
#pragma once

#include <cstddef>
#include <span>

#include "core/base/dtype.h"

namespace hvd::kernel {

/// Of one reduce().
inline constexpr size_t kMaxSources = 1024;

/// destination[i] = sources[0][i] op sources[1][i] op ... in that order. float16 and bfloat16
/// accumulate in float and are rounded once (to nearest even) at the end; integers wrap; average
/// counts as sum; min and max of a NaN is NaN. For bool: sum and max are or, product and min are
/// and. `destination` may be one of the sources, or overlap none. Takes 1 to kMaxSources sources.
/// `soon` is what this core reads next, as many bytes as the result has, or nullptr: two sources of
/// a half type fetch it meanwhile, since their conversions leave the way to memory idle.
void reduce(ReduceOp op, DType dtype, void* destination, std::span<const void* const> sources,
            size_t elements, const void* soon = nullptr);

/// destination[i] = source[i] * factor. Integers multiply in double and truncate toward zero
/// (saturating); half types in float; a factor of 1 copies. In place when the two are equal; else
/// they do not overlap.
void scale(DType dtype, void* destination, const void* source, double factor, size_t elements);

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
