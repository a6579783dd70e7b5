// Where the tensors of one operation lie if they share one memory of their rank. Values.
#pragma once

#include <cstddef>
#include <random>
#include <vector>

namespace hvd::sim {

/// All in elements.
struct Placement {
  struct Place {
    size_t input = 0;
    size_t output = 0;  ///< may be that of the input
  };
  size_t elements = 0;          ///< of the memory; 0: every tensor has memory of its own
  std::vector<Place> places{};  ///< [tensor] within it
};

struct TensorElements {
  size_t input = 0;
  size_t output = 0;
};

/// Anywhere in a memory that is too short for all: shared, in place, in parts, crosswise.
Placement draw_placement(std::mt19937_64& random, const std::vector<TensorElements>& tensors);

}  // namespace hvd::sim
