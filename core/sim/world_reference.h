// What the operations of a WorldProgram give, computed by one process from the inputs of all ranks,
// as plainly as it can be written. Pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/sim/world_program.h"

namespace hvd::sim {

using Numbers = std::vector<double>;

/// What `rank` contributes: tensor after tensor, or the memory that they share; small whole numbers
/// whose sums every type can hold.
std::vector<ByteVector> inputs_of(const WorldProgram& program, size_t item, int rank);

/// One output. Allgather and alltoall have the shape of the whole; alltoall has the received splits
/// as a second output. Of tensors that share memory it is that memory: every tensor is read before
/// the results are stored, in the order of the tensors.
struct Expected {
  Shape shape;
  DType dtype = DType::float32;
  Numbers numbers;
  double tolerance = 0;  ///< times the larger of 1 and the number
};
std::vector<Expected> expected_of(const WorldProgram& program, size_t item, int rank);

/// How `actual` differs, or "".
std::string difference(const Expected& expected, const std::byte* actual);

}  // namespace hvd::sim
