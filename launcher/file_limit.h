// The limit of open files that horovodrun itself needs for a job.
#pragma once

#include "launcher/job.h"
#include "launcher/process/spawn.h"

namespace hvd::launcher {

/// Throws Error{invalid_argument} with the remedy if the limit of open files, which is raised
/// already, is too low for a job of `ranks`.
void check_open_files(const Job& job, int ranks, const ProcessDefaults& defaults);

}  // namespace hvd::launcher
