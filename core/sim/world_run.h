// Carries out a WorldProgram on a World: every rank submits in an order and at moments drawn from
// the seed, and every result is compared with the reference.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/sim/world_program.h"

namespace hvd::sim {

struct WorldRun {
  std::optional<std::string> failure;  ///< what went wrong, if anything did
  uint64_t digest = 0;                 ///< equal for equal runs
};

/// Adds to the program's census what only a run can tell.
WorldRun run_program(WorldProgram& program, uint64_t seed);

}  // namespace hvd::sim
