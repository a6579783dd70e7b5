// The hash that identifies a tensor's name on the wire. FNV-1a with 128 bits (Fowler, Noll, Vo; RFC
// 9923): with a million names the probability of a collision is below 1e-26.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <string_view>

namespace hvd {

struct NameHash {
  uint64_t high = 0;
  uint64_t low = 0;
  auto operator<=>(const NameHash&) const = default;
};

NameHash hash_name(std::string_view name);

}  // namespace hvd

template <>
struct std::hash<hvd::NameHash> {
  size_t operator()(const hvd::NameHash& hash) const noexcept { return hash.low ^ hash.high; }
};
