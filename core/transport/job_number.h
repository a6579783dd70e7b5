// The number of a job, which separates it from earlier jobs: in the keys of the Store
// (`start/<number>/...`), in handshakes and in frames. One generation of a launcher may run several
// jobs one after the other, since its ranks may shut down and initialize again. The number includes
// both, so keys of an earlier generation are never reused.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hvd {

/// 65536 generations: eleven days at one per 15 s.
inline constexpr uint32_t kBegunBits = 16;
inline constexpr uint32_t kMaxBegun = (uint32_t{1} << kBegunBits) - 1;
inline constexpr uint32_t kMaxGeneration = kMaxBegun;

/// `begun`: how often the rank has initialized in this generation, from 1 to kMaxBegun.
constexpr uint32_t job_number(uint32_t generation, uint32_t begun) {
  return generation << kBegunBits | begun;
}

/// The launcher's generation of a job.
constexpr uint32_t launcher_generation(uint32_t number) { return number >> kBegunBits; }

/// The key in the Store of `what` in the job with this number.
std::string store_key(uint32_t number, const std::string& what);
/// The number in such a key; none in another key.
std::optional<uint32_t> job_of_key(std::string_view key);
/// The beginning of `what` in the keys of a group of some ranks of the job.
inline constexpr std::string_view kKeysOfGroup = "group/";
/// The same number if the key is none of a group: all ranks of the job need what it is for.
std::optional<uint32_t> job_of_start_key(std::string_view key);

}  // namespace hvd
