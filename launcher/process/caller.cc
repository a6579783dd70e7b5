#include "launcher/process/caller.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include "core/base/error.h"

namespace hvd::launcher {

JobKey read_caller_key(int fd) {
  JobKey key;
  const ssize_t count = pread(fd, key.bytes.data(), key.bytes.size(), 0);
  if (count < 0) fail_errno(fmt::format("reading the job's key from descriptor {}", fd));
  if (count != static_cast<ssize_t>(key.bytes.size()))
    fail(Code::unauthorized,
         fmt::format("descriptor {} holds {} bytes, not a key of the job", fd, count));
  fcntl(fd, F_SETFD, FD_CLOEXEC);  // ranks get a read-only copy
  return key;
}

}  // namespace hvd::launcher
