// The seeds of a simulation. HVD_SIM_SEEDS sets their number for every test, HVD_SIM_FROM the first
// seed, to repeat a run. HVD_SIM_PERCENT reduces the number for slow builds.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::sim {

/// Returns consecutive seeds, at least one; `usual` of them unless the environment sets a number.
std::vector<uint64_t> seeds(uint64_t usual);
/// The shell command that runs `test` of this program with one seed.
std::string replay(uint64_t seed, std::string_view test);

}  // namespace hvd::sim
