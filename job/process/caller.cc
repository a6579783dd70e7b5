#include "job/process/caller.h"

#include <fcntl.h>
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

JobKey read_caller_key(int fd) {
  JobKey key;
  const ssize_t count = pread(fd, key.bytes.data(), key.bytes.size(), 0);
  if (count < 0) fail_errno(fmt::format("reading the job's key from descriptor {}", fd));
  if (count != static_cast<ssize_t>(key.bytes.size()))
    fail(Code::unauthorized,
         fmt::format("descriptor {} holds {} bytes, not a key of the job", fd, count));
  fcntl(fd, F_SETFD, FD_CLOEXEC);  // ranks get a copy that nobody can change
  return key;
}

bool has_ended(const FileDescriptor& process) {
  pollfd watched{process.get(), POLLIN, 0};
  return poll(&watched, 1, 0) > 0;
}

}  // namespace hvd::job
