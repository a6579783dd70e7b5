#include "tests/fuzz/target.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdlib>

namespace hvd::fuzz {

std::span<const Target> targets() {
  static const std::array all = {agent,           agreement, frames,     handshake,
                                 launcher_values, records,   rendezvous, store};
  return all;
}

const Target* find_target(std::string_view name) {
  const auto all = targets();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Target& each) { return each.name == name; });
  return found == all.end() ? nullptr : &*found;
}

uint8_t Input::byte() {
  const ConstBytes one = piece(1);
  return one.empty() ? uint8_t{0} : static_cast<uint8_t>(one.front());
}

ConstBytes Input::piece(size_t most) {
  const ConstBytes taken = rest_.first(std::min(most, rest_.size()));
  rest_ = rest_.subspan(taken.size());
  return taken;
}

void must(bool holds, std::string_view what) {
  if (holds) return;
  fmt::print(stderr, "this must hold: {}\n", what);
  std::abort();
}

}  // namespace hvd::fuzz
