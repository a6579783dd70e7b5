// Decides which calls on a group can run as a TensorTask. Pure.
#pragma once

#include <optional>

#include "core/blocking/tensor_task.h"
#include "horovod/horovod.h"

namespace hvd {

/// Returns nullopt unless the request has one contiguous, non-empty tensor within `limits`. Also
/// returns nullopt if the request may be invalid; it then takes the general path with all checks
/// and messages. For valid requests all ranks get the same decision. `rank`, `size`: within the
/// group.
std::optional<TensorTask> tensor_task_of(const hvd_request& request, int rank, int size,
                                         const SizeLimits& limits);

}  // namespace hvd
