// The end of everything below a process: ranks, their children, and what these have started in
// sessions of their own. Works because the caller is a subreaper: an orphan becomes its child, so a
// process without children has no descendants.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string_view>
#include <vector>

namespace hvd::job {

/// A line of /proc/<pid>/stat: pid, parent, state. False when it is none.
struct ProcessStat {
  pid_t pid = 0;
  pid_t parent = 0;
  char state = 0;
};
bool parse_stat(std::string_view line, ProcessStat& stat);

/// All live processes below this one, parents first.
std::vector<pid_t> descendants();

/// Sends `signal` to each of them.
void signal_descendants(int signal);

/// Reaps what has ended, telling `reaped(pid, wait status)`. False when no child is left.
bool reap(const std::function<void(pid_t, int)>& reaped);

/// Kills until nothing is left. Blocks for as long as that takes.
void kill_descendants(const std::function<void(pid_t, int)>& reaped);

}  // namespace hvd::job
