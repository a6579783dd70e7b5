// Descriptors that report the end of a process: pidfds (Linux 5.3), or pipes where the kernel has
// no pidfds or forbids them. Connections cannot: a forked child may keep the other end open. The
// parent-death signal cannot either: it is sent when a thread ends.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string_view>

#include "core/transport/file_descriptor.h"

namespace hvd {

/// Returns a descriptor that is readable once the process has ended, even before it is reaped.
/// Without pidfds a thread polls /proc (process_poll.h). Throws Error{internal} if there is no such
/// process, or neither way is available.
FileDescriptor open_process(pid_t pid);

/// Returns a descriptor that reports the end of this process, to be passed to other processes;
/// needs neither pidfds nor /proc. Thread-safe.
FileDescriptor open_own_process();

/// Returns whether the process of such a descriptor has ended. Does not block.
bool has_ended(const FileDescriptor& process);

/// The state that /proc shows of a process which a signal has stopped; 't': a debugger has.
inline constexpr char kStoppedBySignal = 'T';
/// Returns the state of the process as /proc shows it. nullopt if /proc does not show it, it has
/// ended, or there are no pidfds.
std::optional<char> state_of_process(const FileDescriptor& process);

/// Returns whether the process has replaced itself by another program (exec), which closes `file`:
/// a memfd that it and this process have open. False if /proc does not show it, or it has ended.
bool has_replaced_itself(const FileDescriptor& process, std::string_view file);

}  // namespace hvd
