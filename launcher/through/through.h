// A job that another launcher starts (mpirun, jsrun): horovodrun runs that launcher, waits, and
// ends with its exit code. Signals sent to horovodrun are forwarded to the other launcher, which
// signals the ranks. If horovodrun is killed, or the process that called for the job ends, the
// other launcher gets SIGTERM. If it survives another signal, it gets SIGTERM too, and is killed if
// it survives SIGTERM.
#pragma once

#include <vector>

#include "core/base/knobs.h"
#include "launcher/options/hosts.h"
#include "launcher/options/options.h"

namespace hvd::launcher {

/// Returns the environment of the ranks of another launcher, without the rank variables that this
/// process may have from another job.
Environment foreign_environment(const Environment& job, const Options& options);

/// Returns the exit status of the other launcher. Throws Error{invalid_argument} if it is not
/// installed or does not support the options.
int launch_through_mpirun(const Options& options, const std::vector<Host>& hosts,
                          const Environment& job);
int launch_through_jsrun(const Options& options, const std::vector<Host>& hosts,
                         const Environment& job);

}  // namespace hvd::launcher
