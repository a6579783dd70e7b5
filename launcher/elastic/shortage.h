// What the user is told of an elastic job that has fewer workers than the minimum.
#pragma once

#include <cstddef>
#include <string>

#include "launcher/elastic/elastic.h"

namespace hvd::launcher::elastic {

/// `ready`: how many workers it has, without those that are starting.
std::string few_are_left(size_t ready, int min);
/// What the job can wait for. Empty: nothing, so it cannot go on. `lacking`: how many workers it
/// needs besides those that are ready; `starting`: how many are on their way.
std::string awaited(const State& state, size_t lacking, size_t starting);

/// Why the job ends when no member is left.
std::string nobody_is_left(const State& state);

}  // namespace hvd::launcher::elastic
