// Which calls on a group are plain enough for an EagerTask; BlockingGroup chooses its way. Pure.
#pragma once

#include <optional>

#include "core/backend/host/eager_task.h"
#include "horovod/horovod.h"

namespace hvd {

/// `rank` and `size` are those of the group. Nothing unless the request is one contiguous tensor,
/// not empty and within `limits`, and nothing where anything may be wrong with it: such a request
/// takes the way through all checks, which knows what to say. Of valid requests, whether they are
/// eager follows from facts that are equal on all ranks.
std::optional<EagerTask> eager_task_of(const hvd_request& request, int rank, int size,
                                       const EagerLimits& limits);

}  // namespace hvd
