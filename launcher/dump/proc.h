// What /proc shows of the processes of a job. Functions return empty values for processes that have
// ended or cannot be read.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/options/environment.h"

namespace hvd::launcher {

/// The parent of each process of this machine.
using ProcessParents = std::map<pid_t, pid_t>;
ProcessParents all_processes();
/// Of its main thread; '?' if it has ended.
char state_of(pid_t process);
std::vector<pid_t> children_of(pid_t parent, const ProcessParents& all);
/// `root` and the processes below it, parents first.
std::vector<pid_t> tree_of(pid_t root, const ProcessParents& all);

std::string process_name(pid_t process);  ///< without arguments
std::vector<std::string> arguments_of(pid_t process);
Environment environment_of(pid_t process);
/// Whether it belongs to the user who runs this program.
bool is_own(pid_t process);
/// Whether the process has a handler for the signal.
bool handles_signal(pid_t process, int signal);
/// The threads that sleep and take the signal, other than the main thread.
std::vector<pid_t> sleeping_threads(pid_t process, int signal);
/// What its main thread waits for in the kernel, for example "read of /data/x" or "pipe_read".
std::string kernel_place(pid_t process);

/// Parses /proc/<pid>/syscall: a call that works on a file, and the file. -1: none.
struct BlockedCall {
  std::string_view name{};
  int descriptor = -1;
};
std::optional<BlockedCall> parse_syscall(std::string_view text);

}  // namespace hvd::launcher
