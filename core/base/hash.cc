#include "core/base/hash.h"

namespace hvd {

NameHash hash_name(std::string_view name) {
  __extension__ using Wide = unsigned __int128;
  constexpr Wide kBasis = (Wide{0x6c62272e07bb0142} << 64) | 0x62b821756295c58d;
  constexpr Wide kPrime = (Wide{1} << 88) | 0x13b;
  Wide hash = kBasis;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * kPrime;
  return {static_cast<uint64_t>(hash >> 64), static_cast<uint64_t>(hash)};
}

}  // namespace hvd
