// The process that started the launcher as its own part (horovod.run, a notebook). When it ends,
// for whatever reason, the job ends too (core/transport/process_watch.h detects it).
#pragma once

#include "core/transport/handshake.h"

namespace hvd::launcher {

/// Reads the job's key, which the caller has too, from an inherited file. Throws Error if the file
/// does not hold a key.
JobKey read_caller_key(int fd);

}  // namespace hvd::launcher
