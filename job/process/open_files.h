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

/// Raises the soft limit to the hard one, and fills in what the ranks get back.
void allow_many_descriptors(ProcessDefaults& defaults);

/// Why the hard limit is too low, for the user. Empty: it is not.
std::string shortage_of(const OpenFiles& files, const ProcessDefaults& defaults);

/// What the user can do about it.
inline constexpr const char* kMoreFilesAdvice =
    "raise the hard limit, which ulimit -Hn shows (nofile in /etc/security/limits.conf, "
    "LimitNOFILE of a systemd unit, docker run --ulimit nofile=N), or start fewer ranks per host";

}  // namespace hvd::job
