#include "job/caller.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/base/error.h"

namespace hvd::job {

FileDescriptor open_process(int pid) {
  // Debian 12 has no wrapper for it in a C++ header; the descriptor closes on exec by itself.
  FileDescriptor process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!process) fail_errno(fmt::format("watching process {}, which started this job", pid));
  return process;
}

bool has_ended(const FileDescriptor& process) {
  pollfd watched{process.get(), POLLIN, 0};
  return poll(&watched, 1, 0) > 0;
}

}  // namespace hvd::job
