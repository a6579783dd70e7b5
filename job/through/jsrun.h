// A job in an allocation of LSF: its hosts, and what jsrun is told about them. Pure; through.h runs
// it.
#pragma once

#include <string>
#include <vector>

#include "core/base/knobs.h"
#include "job/options/hosts.h"
#include "job/options/options.h"
#include "job/through/mpirun.h"

namespace hvd::job {

/// Whether this process belongs to a job of LSF.
bool is_in_lsf(const Environment& environment);

/// Its hosts with their cores, without the one that only runs the batch script. Empty outside LSF.
/// Throws Error{invalid_argument} when LSF's variables make no sense.
std::vector<Host> lsf_allocation(const Environment& environment);

/// One resource set a rank (jsrun --erf_input): its host, a range of the host's cores of its own,
/// all GPUs. Throws Error{invalid_argument} for a host that is not in the allocation.
std::string rank_file(const std::vector<Place>& places, const std::vector<Host>& allocation);

/// Whether jsrun is given a rank file: the user's own binding takes its place.
bool needs_rank_file(const Options& options);

ForeignLauncher through_jsrun(const Options& options, const std::string& rank_file_path,
                              const Environment& job);

}  // namespace hvd::job
