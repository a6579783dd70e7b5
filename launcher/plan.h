// Turns the user's options and the facts about the machine into the plan of a job. Pure: starts and
// prints nothing; all system queries go through Machine.
#pragma once

#include "launcher/doctor.h"
#include "launcher/job.h"
#include "launcher/machine.h"
#include "launcher/options/options.h"

namespace hvd::launcher {

/// Throws Error{invalid_argument} for a job that cannot be started. A command that cannot run is
/// reported in Job::problem instead, since the exit code depends on it.
Job plan_job(Options options, const Machine& machine);

/// Returns the plan of --host-discovery-script. Throws Error{invalid_argument} if the script is not
/// found.
DiscoveryPlan plan_discovery(const Options& options, const Machine& machine);

/// Returns the plan of `--doctor`. Throws Error{invalid_argument}.
DoctorPlan plan_doctor(const Options& options, const Machine& machine);

}  // namespace hvd::launcher
