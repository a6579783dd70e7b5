// The results of the operations of a WorldProgram, computed from the inputs of all ranks by simple
// code. Pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/sim/world_program.h"

namespace hvd::sim {

using Numbers = std::vector<double>;

/// Returns the input of `rank`: the tensors, or the memory that they share. Small integers whose
/// sums every type can represent.
std::vector<ByteVector> inputs_of(const WorldProgram& program, size_t item, int rank);

/// One output. `shape` of an allgather or alltoall is that of the whole output. Alltoall has the
/// received splits as a second output. For tensors that share memory the output is that memory:
/// every tensor is read before the results are stored in the order of the tensors.
struct Expected {
  Shape shape;
  DType dtype = DType::float32;
  Numbers numbers;
  double tolerance = 0;  ///< relative to max(1, value)
};
std::vector<Expected> expected_of(const WorldProgram& program, size_t item, int rank);

/// Describes how `actual` differs, "" if it does not.
std::string difference(const Expected& expected, const std::byte* actual);

}  // namespace hvd::sim
