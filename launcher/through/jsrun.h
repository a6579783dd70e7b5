// A job in an LSF allocation: its hosts, and the command line of jsrun. Pure; through.h runs it.
#pragma once

#include <string>
#include <vector>

#include "core/base/knobs.h"
#include "launcher/options/hosts.h"
#include "launcher/options/options.h"
#include "launcher/through/mpirun.h"

namespace hvd::launcher {

/// True if this process belongs to an LSF job.
bool is_in_lsf(const Environment& environment);

/// Returns its hosts with their cores, without the one that only runs the batch script. Empty
/// outside LSF. Throws Error{invalid_argument} if LSF's variables cannot be parsed.
std::vector<Host> lsf_allocation(const Environment& environment);

/// One resource set per rank (jsrun --erf_input): its host, a range of the host's cores of its own,
/// all GPUs. `filled`: see hosts.h. Throws Error{invalid_argument} for a host that is not in the
/// allocation.
std::string rank_file(const std::vector<Host>& filled, const std::vector<Host>& allocation);

/// True if jsrun gets a rank file; false if the user's own binding replaces it.
bool needs_rank_file(const Options& options);

ForeignLauncher through_jsrun(const Options& options, const std::string& rank_file_path,
                              const Environment& job);

}  // namespace hvd::launcher
