// The number of a job, which separates it from earlier jobs: in the keys of the Store
// (`start/<number>/...`), in handshakes and in frames. One generation of a launcher may run several
// jobs one after the other, since its ranks may shut down and initialize again. The number includes
// both, so keys of an earlier generation are never reused.
#pragma once

#include <cstdint>

namespace hvd::launcher {

/// 65536 generations: eleven days at one per 15 s.
inline constexpr uint32_t kBegunBits = 16;
inline constexpr uint32_t kMaxBegun = (uint32_t{1} << kBegunBits) - 1;
inline constexpr uint32_t kMaxGeneration = kMaxBegun;

/// `begun`: how often the rank has initialized in this generation, from 1 to kMaxBegun.
constexpr uint32_t job_number(uint32_t generation, uint32_t begun) {
  return generation << kBegunBits | begun;
}

constexpr uint32_t generation_of(uint32_t number) { return number >> kBegunBits; }

}  // namespace hvd::launcher
