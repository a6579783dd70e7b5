// `horovodrun --dump`: what each rank of a running job waits for, and where it is.
#pragma once

#include "launcher/options/options.h"
#include "launcher/worker/question.h"

namespace hvd::launcher {

/// Prints the dump of the job that `options` name. Returns the exit code. Throws
/// Error{invalid_argument} if there is no such job.
int run_dump(const Options& options);

/// Prints what the ranks below a supervisor of this host tell, for the launcher or agent that has
/// started it.
int run_dump_here(int supervisor, Question question);

}  // namespace hvd::launcher
