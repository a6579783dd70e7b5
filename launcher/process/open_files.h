// The limit of open files: the number that the launcher and its agents need, and the limit that
// ranks get back.
#pragma once

#include <cstddef>
#include <string>

#include "launcher/process/spawn.h"

namespace hvd::launcher {

/// The files that one process of the launcher keeps open.
struct OpenFiles {
  size_t local_ranks = 0;  ///< two pipes each, both ends open at the start
  size_t store_clients = 0;
  size_t ssh_count = 0;

  size_t needed() const;
};

/// Raises the soft limit (raise_descriptor_limit()). Stores the previous limit, which ranks get
/// back, in `defaults`.
void allow_many_descriptors(ProcessDefaults& defaults);

/// Returns why even the raised limit is too low, for the user. Empty if it is not.
std::string shortage_of(const OpenFiles& files, const ProcessDefaults& defaults);

/// Returns the remedy for a low limit.
std::string more_files_advice();

}  // namespace hvd::launcher
