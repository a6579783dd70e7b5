// Runs a C request on a BlockingGroup, with the checks of an operation that is submitted to the
// engine.
#pragma once

#include "core/blocking/blocking_group.h"
#include "horovod/horovod.h"

namespace hvd {

/// Runs `request` on `group`. Blocks until it is done. Throws Error{invalid_argument} for an
/// invalid request, and the errors of BlockingGroup.
void run_on(BlockingGroup& group, const hvd_request& request);

}  // namespace hvd
