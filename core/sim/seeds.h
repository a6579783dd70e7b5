// How many seeds a simulation runs, and from which: HVD_SIM_SEEDS and HVD_SIM_FROM override what a
// test asks for.
#pragma once

#include <cstdint>
#include <vector>

namespace hvd::sim {

/// Consecutive seeds; `usual` of them unless HVD_SIM_SEEDS says otherwise.
std::vector<uint64_t> seeds(uint64_t usual);

}  // namespace hvd::sim
