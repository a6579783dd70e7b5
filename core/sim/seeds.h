// How many seeds a simulation runs, and from which. HVD_SIM_SEEDS sets the number for every test
// and HVD_SIM_FROM the first one, to repeat a run; HVD_SIM_PERCENT shortens them all, for slow
// builds.
#pragma once

#include <cstdint>
#include <vector>

namespace hvd::sim {

/// Consecutive seeds; `usual` of them unless the environment says otherwise, and at least one.
std::vector<uint64_t> seeds(uint64_t usual);

}  // namespace hvd::sim
