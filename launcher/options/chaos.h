// What --chaos does to an elastic job, so that users can try out how it recovers. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

namespace hvd::launcher {

struct Chaos {
  std::chrono::milliseconds kill_every{};  ///< a random rank
  uint64_t seed = 0;                       ///< the same seed chooses the same ranks
  bool operator==(const Chaos&) const = default;
};

/// Parses `kill=30s` or `kill=500ms,seed=7`. Throws Error{invalid_argument}.
Chaos parse_chaos(std::string_view text);

}  // namespace hvd::launcher
