// The process that started the launcher as a part of its own (horovod.run, a notebook). When it is
// gone, for whatever reason, the job ends too (core/transport/process_watch.h tells).
#pragma once

#include "core/transport/handshake.h"

namespace hvd::job {

/// The job's key, which the caller has too, from an inherited file. Throws Error when it holds
/// none.
JobKey read_caller_key(int fd);

}  // namespace hvd::job
