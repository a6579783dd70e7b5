// Adasum (Maleki et al., "Scaling Distributed Training with Adaptive Summation", 2020): a sum of
// two gradients a and b that takes away what both have in common,
//   (1 - a.b / (2 |a|^2)) a + (1 - a.b / (2 |b|^2)) b,
// so that orthogonal gradients add up and equal ones stay as they are. Pure arithmetic on stretches
// of two vectors, for the floating types, and who has which stretch. Who calls it keeps the order
// of the stretches fixed: the same order, the same bits.
#pragma once

#include <cstddef>

#include "core/base/dtype.h"
#include "core/collective/schedule.h"

namespace hvd {

/// Of two vectors, or of equal stretches of them; stretches add up. The executor sums these as
/// three float64.
struct AdasumProducts {
  double dot = 0;  ///< a.b
  double a = 0;    ///< |a|^2
  double b = 0;    ///< |b|^2
};

/// Adds what the stretches at `a` and `b` contribute. Accumulates in double.
void add_products(AdasumProducts& products, DType dtype, const void* a, const void* b,
                  size_t elements);

/// What a and b are multiplied by before they are added.
struct AdasumFactors {
  double a = 1;
  double b = 1;
};
/// A factor is 1 where the square of its vector is too small to divide by (below sqrt(DBL_MIN)).
AdasumFactors adasum_factors(const AdasumProducts& products);

/// destination[i] = factors.a * a[i] + factors.b * b[i], rounded to float for half types and then
/// to theirs. `destination` may be a or b.
void adasum_combine(DType dtype, void* destination, const void* a, const void* b,
                    const AdasumFactors& factors, size_t elements);

/// A stretch of a tensor, in elements.
struct Stretch {
  size_t begin = 0;
  size_t end = 0;
  size_t size() const { return end - begin; }
  bool operator==(const Stretch&) const = default;
};

/// What `rank` holds of a tensor of `elements` after `levels` levels: at each, the pair rank, rank
/// ^ (1 << level) cuts what it held in halves, and the lower rank keeps the first. It depends on
/// nothing else, so neither do the products.
Stretch adasum_stretch(int rank, int levels, size_t elements);

/// The two ranks of a pair hand each other a chunk: 0 is what the lower one gives, 1 what the
/// higher one does.
Schedule pair_exchange(int rank, int partner);

}  // namespace hvd
