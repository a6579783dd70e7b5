// Finds the jobs of this user on this host.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/dump/proc.h"

namespace hvd::launcher {

struct RunningJob {
  pid_t launcher = 0;
  bool is_horovodrun = true;
  std::vector<pid_t> supervisors{};  ///< the parents of its ranks on this host
  std::string command{};             ///< the command line of the launcher
};

/// Those whose horovodrun runs on this host, by its number.
std::vector<RunningJob> running_jobs();
/// Returns the launchers in /proc/net/unix, by the names of their sockets.
std::vector<pid_t> launchers_in(std::string_view sockets);
/// Returns the only one. Throws Error{invalid_argument} if there is none; if there are several, the
/// text lists them.
RunningJob the_only(const std::vector<RunningJob>& jobs);
/// Returns those of the launchers that a process belongs to: itself or the nearest one above it, as
/// of a rank; or else those below it, as of a script or of the caller of horovod.run.
std::vector<pid_t> launchers_around(pid_t process, const std::vector<pid_t>& launchers,
                                    const ProcessParents& all);
/// Returns the one that this process belongs to. Another launcher, as mpirun, or one of its ranks
/// will do as well. Throws Error{invalid_argument} if there is none, or several, listing them.
/// Without a process: the_only().
RunningJob find_job(std::optional<pid_t> process);

}  // namespace hvd::launcher
