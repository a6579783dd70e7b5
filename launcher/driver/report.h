// The messages that tell the user what happened to the workers, by rank. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/driver/driver.h"
#include "launcher/worker/assignment.h"

namespace hvd::launcher {

/// "SIGTERM". "unknown" for a real-time signal or a number that is none.
std::string signal_name(int signal);

/// "exited with code 3", "was killed by signal 9 (SIGKILL)".
std::string describe(const ExitStatus& status);

/// Returns the lines of an announcement. `tail`: the last lines of the worker's output. `host`: its
/// host, empty in a job on one host.
std::vector<std::string> report(const Announce& announce, const Assignment& assignment,
                                const std::vector<std::string>& tail, const std::string& host = "");
std::string report(const AnnounceHost& announce, const Assignment& assignment,
                   const std::string& host);
std::string report(const AnnounceSilent& announce, const Assignment& assignment,
                   const std::string& host = "");
std::string report(const AnnounceEnd& announce);

/// What ranks are told that wait for others in `init`, when the first failure ends the job, or when
/// a rank has ended with exit code 0.
std::string told_to_others(const Announce& first, const Assignment& assignment,
                           const std::string& host = "");
std::string told_to_others(const AnnounceHost& first, const Assignment& assignment,
                           const std::string& host);
std::string told_to_others(const AnnounceSilent& silent, const Assignment& assignment,
                           const std::string& host = "");
std::string told_to_others(const RefuseStarts& refuse, const Assignment& assignment,
                           const std::string& host = "");

/// Returns why a program was not started, by its errno.
std::string why_not_started(int error);

/// A host of an elastic job that is not ready, at its start or when it was discovered.
std::string not_used(const std::string& host, const std::string& problem);

/// Processes on this machine that survived SIGKILL, or a host that does not answer the order to
/// kill.
/// Of Abandon. `after`: see there.
std::string report_left_here(const std::string& host, Duration after);
std::string report_left_there(const std::string& host, Duration after);

}  // namespace hvd::launcher
