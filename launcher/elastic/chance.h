// Random numbers of the decisions of an elastic job. The same arguments give the same number, so
// that the decisions are a pure function.
#pragma once

#include <cstdint>

namespace hvd::launcher::elastic {

/// Below 2^64, for each seed and pair of numbers.
uint64_t random_number(uint64_t seed, int first, int second);
/// From 0 to 1.
double random_part(uint64_t seed, int first, int second);

}  // namespace hvd::launcher::elastic
