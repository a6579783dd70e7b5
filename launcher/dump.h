// `horovodrun --dump`: what each rank of a running job waits for, and where it is.
#pragma once

#include "launcher/options/options.h"

namespace hvd::launcher {

/// Prints the dump of the job that `options` name. Returns the exit code. Throws
/// Error{invalid_argument} if there is no such job.
int run_dump(const Options& options);

}  // namespace hvd::launcher
