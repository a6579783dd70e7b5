// The dimensions of a tensor, outermost first. A scalar has no dimensions and one element.
#pragma once

#include <cstdint>
#include <functional>
#include <numeric>
#include <string>

#include "core/base/small_vector.h"

namespace hvd {

using Shape = SmallVector<int64_t, 5>;

inline int64_t element_count(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

/// "[4, 2]", as in error messages.
inline std::string to_text(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

}  // namespace hvd
