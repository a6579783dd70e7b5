// What the processes of a job find in their environment. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/knobs.h"
#include "job/hosts.h"
#include "job/options.h"

namespace hvd::job {

/// The descriptor under which every rank finds the job's key. High, since shells use low ones.
inline constexpr int kKeyDescriptor = 100;

/// The launcher's environment as far as it is passed on, with the settings that flags and the
/// config file give. The knobs in it are those of the job.
Environment job_environment(const Environment& launcher, const Options& options);

/// What is the same for all ranks beside that: where to meet, who moves the data.
Environment meeting_variables(const Environment& job, const Options& options, uint16_t store_port);

/// What one rank is told about its place.
Environment rank_variables(const Place& place);

}  // namespace hvd::job
