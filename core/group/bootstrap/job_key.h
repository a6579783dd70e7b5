// How a rank gets the job's key: through a descriptor that it inherits from its launcher, never
// through the environment or the command line, which others can read.
#pragma once

#include "core/base/knobs.h"
#include "core/transport/handshake.h"

namespace hvd {

/// `fd` stays open and at its position, so that init can be repeated, and is not passed on by exec.
/// Throws Error{unauthorized} when it does not hold a key.
JobKey read_job_key(int fd);

/// From the descriptor that HOROVOD_KEY_FD names. Throws Error{unauthorized, invalid_argument}.
JobKey read_job_key(const Environment& environment);

}  // namespace hvd
