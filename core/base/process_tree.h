// The process tree as /proc shows it. No function here throws. A process may end at any time, and
// its PID may then be reused.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hvd {

/// Returns whether /proc shows the processes of this PID namespace with their PIDs here.
bool processes_are_visible();

/// Returns the numbers in line `name` of /proc/<process>/status; empty if it cannot be read.
std::vector<long> status_numbers(pid_t process, const std::string& name);

/// A line of /proc/<pid>/stat.
struct ProcessStat {
  pid_t pid = 0;
  pid_t parent = 0;
  char state = 0;
  std::optional<long> threads{};  ///< empty if the line ends before
};
/// Returns false if the line is malformed.
bool parse_stat(std::string_view line, ProcessStat& stat);

/// Returns whether other threads of the process run on after the end of its main thread.
bool outlives_main_thread(pid_t process);

/// Returns the folder in /proc with the files and the environment of a process: that of its main
/// thread, or of another one, since a thread shows them only until it ends.
std::string folder_of_memory(pid_t process);

/// Returns the path in /proc of an open file whose link contains `name`; empty if there is none.
/// nullopt: /proc does not show the files of the process. Reads no memory of it, so that it never
/// waits for a process that hangs in the kernel.
std::optional<std::string> open_file_of(pid_t process, std::string_view name);

/// Returns the parent's PID; 0 if there is none or it cannot be read.
pid_t parent_of(pid_t process);

/// Returns the ancestors of a process, nearest first, up to the first process of the PID namespace.
/// Stops early at a process whose entry cannot be read, and after kMaxGenerations.
std::vector<pid_t> processes_above(pid_t process);

/// Bounds the cost of processes_above(); deeper than any chain of shells and wrappers.
inline constexpr size_t kMaxGenerations = 64;

}  // namespace hvd
