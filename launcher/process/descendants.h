// Ends all processes below the calling one: ranks, their children, and processes that these started
// in sessions of their own. The caller must be a subreaper: orphans become its children, so a
// process without children has no descendants.
//
// Descendants are found in /proc. If it is not mounted, or shows a PID namespace in which this
// process is not visible, only the added children and the process groups that they lead are
// reached.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::launcher {

/// Returns the numbers of a process by PID namespace, from that of /proc down to its own: the line
/// NSpid of /proc/<pid>/status. Empty if there is no such line.
std::vector<pid_t> parse_namespace_pids(std::string_view status);

/// Returns why the descendants of this process cannot be found, for the user. Empty if they can.
std::string why_descendants_are_hidden();

/// Returns all live processes below this one, parents first, by their numbers in this PID
/// namespace. Empty if why_descendants_are_hidden() has a reason.
std::optional<std::vector<pid_t>> find_descendants();

/// True if a process with this /proc/<pid>/status does not take the default action on a signal: it
/// has a handler, or blocks the signal to read it from a queue.
bool awaits_signal(std::string_view status, int number);

/// Also for a process that may be about to start another: fork, vfork and posix_spawn block all
/// signals for a moment in shells and in Python. A process that blocks them all is looked at again,
/// after each `pause()`, until that returns false; if it still does then, it awaits the signal.
/// `status` returns the present /proc/<pid>/status.
bool awaits_signal(const std::function<std::string()>& status, int number,
                   const std::function<bool()>& pause);

/// The children of this process and all processes below them. Owned and used by one thread.
class Descendants {
 public:
  using Reaped = std::function<void(pid_t, int)>;

  /// Adds a child that has not been reaped. It may lead a process group.
  void add(pid_t child);

  // The first function of each pair signals everything below this process. The second signals one
  // child, the processes below it, and its process group, which may outlive the child. A process
  // that left both the tree and the group is not reached.

  /// To every process that is found.
  void signal(int number) const;
  void signal(pid_t child, int number) const;
  /// Like a terminal: to the process groups that the children lead.
  void signal_groups(int number) const;
  void signal_group(pid_t child, int number) const;
  /// In each child's tree: to the uppermost processes that handle the signal, at most one per path
  /// from the child. So a shell around a program does not die of a signal for the program, and a
  /// process that inherited the handler does not run it again. If no process handles it: to the
  /// child.
  void signal_handlers(int number) const;
  void signal_handlers(pid_t child, int number) const;
  /// Reaps ended children, calling `reaped(pid, wait status)`. Returns false if no child is left.
  bool reap(const Reaped& reaped);
  /// Sends SIGKILL until no child is left, for at most `patience`: a process that is blocked in the
  /// kernel (on a dead file server) ends only after that. Returns false if children are left.
  bool kill_all(std::chrono::milliseconds patience, const Reaped& reaped);

 private:
  void forget_empty_groups();

  std::set<pid_t> children_;  ///< added and not reaped
  std::set<pid_t> groups_;    ///< of added children; may still have members
};

}  // namespace hvd::launcher
