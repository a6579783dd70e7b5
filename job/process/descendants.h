// The end of everything below a process: ranks, their children, and what these have started in
// sessions of their own. Works because the caller is a subreaper: an orphan becomes its child, so a
// process without children has no descendants.
//
// Descendants are found in /proc. Where it is not mounted, or shows a PID namespace in which this
// process is not visible, only the children that were added, and the process groups that they lead,
// can be reached.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <set>
#include <string>
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

/// The numbers of a process by PID namespace, from that of /proc down to its own: the line NSpid of
/// /proc/<pid>/status. None: there is no such line.
std::vector<pid_t> parse_namespace_pids(std::string_view status);

/// Why the descendants of this process cannot be found, for the user. Empty: they can.
std::string why_descendants_are_hidden();

/// All live processes below this one, parents first, by their numbers in this PID namespace.
/// Nothing where why_descendants_are_hidden() has a reason.
std::optional<std::vector<pid_t>> find_descendants();

/// What a process has started and all that is below. Owned and used by one thread.
class Descendants {
 public:
  using Reaped = std::function<void(pid_t, int)>;

  /// A child that has not been reaped. It may lead a process group.
  void add(pid_t child);

  /// To every process that can be found.
  void signal(int number) const;
  /// Reaps what has ended, telling `reaped(pid, wait status)`. False when no child is left.
  bool reap(const Reaped& reaped);
  /// Sends SIGKILL until no child is left, but no longer than `patience`: a process that waits in
  /// the kernel (for a file server that is down) ends when that wait does. False: some are left.
  bool kill_all(std::chrono::milliseconds patience, const Reaped& reaped);

 private:
  void forget_empty_groups();

  std::set<pid_t> children_;  ///< added and not reaped
  std::set<pid_t> groups_;    ///< added, and their process groups may have members
};

}  // namespace hvd::job
