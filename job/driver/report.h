// How the launcher tells what happened to a rank. Pure.
#pragma once

#include <string>
#include <vector>

#include "job/driver/driver.h"

namespace hvd::job {

/// "exited with code 3", "was killed by signal 9 (SIGKILL)".
std::string describe(const ExitStatus& status);

/// The lines of an announcement. `tail`: what the rank said last. `host`: where it ran, in a job of
/// several hosts.
std::vector<std::string> report(const Announce& announce, const std::vector<std::string>& tail,
                                const std::string& host = "");
std::string report(const AnnounceHost& announce, const std::string& host);

}  // namespace hvd::job
