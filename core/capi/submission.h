// From the C structure of a request to what the engine takes, or the backend of a group, with every
// check that needs no other rank.
#pragma once

#include "core/base/knobs.h"
#include "core/engine/process_sets.h"
#include "core/engine/request.h"
#include "horovod/horovod.h"

namespace hvd {

/// `rank`: this one, global. Throws Error{invalid_argument} naming the operation and what is wrong
/// with it.
Request make_request(const hvd_request& request, int rank, const ProcessSets& sets,
                     const Knobs& knobs);

/// The same for a call of `rank` within a group of `members`, who agree on nothing. The caller
/// gives all outputs, and an alltoall has no splits.
Batch make_batch(const hvd_request& request, int rank, const ProcessSet& members);

}  // namespace hvd
