// The process that started the launcher as a part of its own (horovod.run, a notebook): when it is
// gone, for whatever reason, the job ends too. A descriptor of the process tells it, since neither
// a pipe (a forked child may hold its other end) nor a signal at the parent's death (it comes at
// the end of the thread that started us) does.
#pragma once

#include "core/transport/file_descriptor.h"
#include "core/transport/handshake.h"

namespace hvd::job {

/// A descriptor that is readable once the process has ended. Throws Error when there is none.
FileDescriptor open_process(int pid);

/// The job's key, which the caller has too, from an inherited file. Throws Error when it holds
/// none.
JobKey read_caller_key(int fd);

bool has_ended(const FileDescriptor& process);

}  // namespace hvd::job
