// One function, in a file of its own, for each launcher whose traces in the environment we can
// read.
#pragma once

#include <optional>

#include "core/base/knobs.h"
#include "core/group/bootstrap/identity.h"

namespace hvd {

/// Nothing when this launcher did not start us. Throws Error{invalid_argument} where it says half
/// of what is needed, or nonsense.
std::optional<Identity> from_horovodrun(const Environment& environment);

}  // namespace hvd
