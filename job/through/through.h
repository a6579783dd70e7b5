// A job that another launcher starts (mpirun, jsrun): horovodrun says what it is to do, waits, and
// ends as it does. Signals that are sent to horovodrun are passed on; if it is killed, or the
// process that called for the job ends, the other gets SIGTERM. One that does not end then is
// killed.
#pragma once

#include <vector>

#include "core/base/knobs.h"
#include "job/options/hosts.h"
#include "job/options/options.h"

namespace hvd::job {

/// What ranks of another launcher find in their environment: places that this process itself may
/// have in another job are not theirs.
Environment foreign_environment(const Environment& job, const Options& options);

/// Returns the exit status of the other launcher. Throws Error{invalid_argument} when there is
/// none, or when it cannot do what the options ask.
int launch_through_mpirun(const Options& options, const std::vector<Host>& hosts,
                          const Environment& job);
int launch_through_jsrun(const Options& options, const std::vector<Host>& hosts,
                         const Environment& job);

}  // namespace hvd::job
