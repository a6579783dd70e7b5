#include "launcher/elastic/cooldown.h"

#include <algorithm>
#include <cstdint>

namespace hvd::launcher::elastic {

Duration pause_after(const Cooldown& cooldown, int drops, double part) {
  const auto [low, high] = cooldown;
  constexpr int kMostDoublings = 12;  // more than from 1 s to an hour
  const auto doubled = low * (int64_t{1} << std::min(drops, kMostDoublings));
  const auto more = std::chrono::duration_cast<Duration>(part * std::chrono::duration<double>(low));
  return std::clamp<Duration>(doubled + more, low, high);
}

}  // namespace hvd::launcher::elastic
