// Reading whole numbers, and pairs that make sense only together, out of an environment.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/base/knobs.h"

namespace hvd {

/// A variable that is set to nothing counts as not set.
std::optional<std::string> variable(const Environment& environment, const std::string& name);

/// Throws Error{invalid_argument} naming the variable unless it is a whole number of the range.
std::optional<int64_t> number_variable(const Environment& environment, const std::string& name,
                                       int64_t min, int64_t max);

struct Place {
  int index = 0;
  int count = 1;
};

/// `index_name` (0 to count - 1) and `count_name`. Nothing when neither is set; throws
/// Error{invalid_argument} naming what was found and what is missing when one is.
std::optional<Place> place_variables(const Environment& environment, const std::string& index_name,
                                     const std::string& count_name);

/// The name under which this machine goes, where the launcher gives it none.
std::string own_hostname();

}  // namespace hvd
