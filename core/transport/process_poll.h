// Reports the end of a process without a pidfd: a thread reads /proc. For kernels before Linux 5.3
// and for containers that forbid pidfd_open; process_watch.h decides.
#pragma once

#include <sys/types.h>

#include <string_view>

#include "core/transport/file_descriptor.h"

namespace hvd {

/// Returns a descriptor that becomes readable once the process has ended, even before it is reaped,
/// at most about 20 ms late. A thread of its own, with all signals blocked, ends when the process
/// does or when all copies of the descriptor are closed. Throws Error{internal} if there is no such
/// process or /proc does not show the processes of this PID namespace.
FileDescriptor poll_process(pid_t pid);

/// Returns whether the process with this /proc/<pid>/stat still runs. A zombie with more than one
/// thread does: only its first thread has ended. Malformed text counts as running.
bool shows_running(std::string_view stat);

}  // namespace hvd
