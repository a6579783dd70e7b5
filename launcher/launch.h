// Runs one job from start to end: serves the Store, holds a link to each host, forwards output, and
// carries out the Driver's actions. One thread, one epoll.
#pragma once

#include "launcher/job.h"

namespace hvd::launcher {

/// Returns the exit code of the job. Throws Error when it could not be started.
int launch(const Job& job);

}  // namespace hvd::launcher
