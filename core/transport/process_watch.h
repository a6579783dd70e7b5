// Descriptors that tell when a process has ended: neither a connection (a forked child may hold its
// other end) nor a signal at a parent's death (it comes at the end of a thread) does.
#pragma once

#include <sys/types.h>

#include "core/transport/file_descriptor.h"

namespace hvd {

/// Readable once the process has ended, also before anybody has waited for it. Throws
/// Error{internal} when there is no such process, or where the kernel does not offer this.
FileDescriptor open_process(pid_t pid);

/// The same for this process, to be handed to others; works on every kernel. Any thread.
FileDescriptor open_own_process();

/// Of one of these. Does not block.
bool has_ended(const FileDescriptor& process);

}  // namespace hvd
