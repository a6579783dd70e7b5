// Reductions that need more precision than their element type: averages, and sums and products that
// are scaled before rounding. Part of kernel::reduce.
#pragma once

#include <cstddef>

#include "core/base/dtype.h"
#include "core/kernel/kernel.h"

namespace hvd::kernel {

/// Like reduce(), for floating types and average, sum or product. Half types accumulate in float,
/// float in double, double in a pair of doubles.
void reduce_wide(ReduceOp op, DType dtype, void* destination, std::span<const void* const> sources,
                 size_t elements, const ReduceOptions& options);

}  // namespace hvd::kernel
