// The limit of open files: what the launcher and its agents need for the ranks, and what the ranks
// get back.
#pragma once

#include <cstddef>
#include <string>

#include "job/process/spawn.h"

namespace hvd::job {

/// What one process of the launcher keeps open.
struct OpenFiles {
  size_t local_ranks = 0;  ///< two pipes each, of which both ends are open at the start
  size_t store_clients = 0;
  size_t ssh_count = 0;

  size_t needed() const;
};

/// Raises the soft limit (raise_descriptor_limit()), and fills in what the ranks get back.
void allow_many_descriptors(ProcessDefaults& defaults);

/// Why the limit is too low once it is raised, for the user. Empty: it is not.
std::string shortage_of(const OpenFiles& files, const ProcessDefaults& defaults);

/// What the user can do about it.
std::string more_files_advice();

}  // namespace hvd::job
