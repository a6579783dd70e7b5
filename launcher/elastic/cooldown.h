// How long an elastic job does not use a host after a failure there.
#pragma once

#include <chrono>

#include "core/base/clock.h"

namespace hvd::launcher::elastic {

/// Doubles with each failure, within these limits.
struct Cooldown {
  std::chrono::seconds low{};
  std::chrono::seconds high{};
};

/// low * 2^drops, and `part` of `low` more. If `part` is random, from 0 to 1, hosts that failed
/// together return one by one.
Duration pause_after(const Cooldown& cooldown, int drops, double part);

}  // namespace hvd::launcher::elastic
