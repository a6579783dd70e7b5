// Adasum (Maleki et al., "Scaling Distributed Training with Adaptive Summation", 2020): a sum of
// two gradients a and b without their common component,
//   (1 - a.b / (2 |a|^2)) a + (1 - a.b / (2 |b|^2)) b,
// so that orthogonal gradients add up and equal gradients remain unchanged. Pure arithmetic on
// parts of two vectors, for floating types, and the assignment of parts to ranks. The caller must
// keep the order of the parts fixed to get bitwise equal results.
#pragma once

#include <cstddef>

#include "core/base/dtype.h"
#include "core/collective/schedule.h"

namespace hvd {

/// Products of two vectors or of corresponding parts of them; products of parts add up. The
/// executor sums them as three float64.
struct AdasumProducts {
  double dot = 0;  ///< a.b
  double a = 0;    ///< |a|^2
  double b = 0;    ///< |b|^2
};

/// Adds the products of the parts at `a` and `b`. Accumulates in double.
void add_products(AdasumProducts& products, DType dtype, const void* a, const void* b,
                  size_t elements);

/// The factors of a and b in the sum.
struct AdasumFactors {
  double a = 1;
  double b = 1;
};
/// Returns the factors. A factor is 1 if the square of its vector is too small to divide by (below
/// sqrt(DBL_MIN)).
AdasumFactors adasum_factors(const AdasumProducts& products);

/// destination[i] = factors.a * a[i] + factors.b * b[i], rounded to float for half types and then
/// to the half type. `destination` may be a or b.
void adasum_combine(DType dtype, void* destination, const void* a, const void* b,
                    const AdasumFactors& factors, size_t elements);

/// A range of a tensor, in elements.
struct Stretch {
  size_t begin = 0;
  size_t end = 0;
  size_t size() const { return end - begin; }
  bool operator==(const Stretch&) const = default;
};

/// Returns the range that `rank` holds of a tensor of `elements` elements after `levels` levels. At
/// each level, the pair (rank, rank ^ (1 << level)) halves its range, and the lower rank keeps the
/// first half. The range depends only on the arguments, and so do the products.
Stretch adasum_stretch(int rank, int levels, size_t elements);

/// The two ranks of a pair exchange one chunk each: chunk 0 is sent by the lower rank, chunk 1 by
/// the higher rank.
Schedule pair_exchange(int rank, int partner);

}  // namespace hvd
