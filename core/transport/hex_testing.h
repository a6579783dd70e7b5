// For tests: bytes as text, to compare them with published values.
#pragma once

#include <fmt/core.h>

#include <string>

#include "core/base/bytes.h"

namespace hvd {

inline std::string as_hex(ConstBytes bytes) {
  std::string text;
  for (const std::byte byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return text;
}

}  // namespace hvd
