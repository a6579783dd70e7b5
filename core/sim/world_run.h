// Runs a WorldProgram on a World. Every rank submits in an order and at times drawn from the seed.
// Every result is compared with the reference.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/sim/world_program.h"

namespace hvd::sim {

struct WorldRun {
  std::optional<std::string> failure;  ///< the first failure, if any
  uint64_t digest = 0;                 ///< equal for equal runs
};

/// Adds the features that only a run reveals to the census of the program.
WorldRun run_program(WorldProgram& program, uint64_t seed);

}  // namespace hvd::sim
