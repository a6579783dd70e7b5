// From the C structure of a request to what a BlockingGroup runs, with the checks of an operation
// that is submitted to the engine.
#pragma once

#include "core/capi/blocking_group.h"
#include "horovod/horovod.h"

namespace hvd {

/// Runs `request` on `group` and returns when it is done. Throws Error{invalid_argument} naming
/// what is wrong with it, and what BlockingGroup throws.
void run_on(BlockingGroup& group, const hvd_request& request);

}  // namespace hvd
