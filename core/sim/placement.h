// The offsets of the tensors of one operation if they share memory. Value types.
#pragma once

#include <cstddef>
#include <random>
#include <vector>

namespace hvd::sim {

/// All sizes are in elements.
struct Placement {
  struct Offsets {
    size_t input = 0;
    size_t output = 0;  ///< may equal that of the input
  };
  size_t elements = 0;            ///< of the memory; 0: every tensor has its own memory
  std::vector<Offsets> places{};  ///< [tensor] within it
};

struct TensorElements {
  size_t input = 0;
  size_t output = 0;
};

/// Draws offsets in a memory that is too small for all tensors, so that they overlap.
Placement draw_placement(std::mt19937_64& random, const std::vector<TensorElements>& tensors);

}  // namespace hvd::sim
