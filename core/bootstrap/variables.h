// Reads whole numbers, and pairs of rank and size, from an environment.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/base/knobs.h"

namespace hvd {

/// A variable with an empty value counts as not set.
std::optional<std::string> variable(const Environment& environment, const std::string& name);

/// Throws Error{invalid_argument} naming the variable if it is not a whole number from `min` to
/// `max`.
std::optional<int64_t> number_variable(const Environment& environment, const std::string& name,
                                       int64_t min, int64_t max);

struct RankAndSize {
  int rank = 0;
  int size = 1;
};

/// `rank_name` (0 to size - 1) and `size_name`. Nothing if neither is set. Throws
/// Error{invalid_argument} naming both if only one is set, or if one is out of range.
std::optional<RankAndSize> rank_and_size_variables(const Environment& environment,
                                                   const std::string& rank_name,
                                                   const std::string& size_name);

/// The name of this machine, for launchers that do not give one.
std::string own_hostname();

}  // namespace hvd
