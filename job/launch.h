// One job from start to end: serves the Store, holds a link to each host, passes output on, and
// does what the Driver says. One thread, one epoll.
#pragma once

#include "job/job.h"

namespace hvd::job {

/// Returns the exit code of the job. Throws Error when it could not be started.
int launch(const Job& job);

}  // namespace hvd::job
