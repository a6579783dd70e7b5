#include "core/transport/process_watch.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <mutex>
#include <utility>

#include "core/base/error.h"

namespace hvd {
namespace {

/// Debian 12 has no wrapper for it in a C++ header; the descriptor closes on exec by itself.
FileDescriptor pidfd_of(pid_t pid) {
  return FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

/// What ends with this process: nobody writes into it, and a forked child does not have it.
struct Lifeline {
  std::mutex mutex;
  pid_t process = 0;
  FileDescriptor reading, writing;
};

/// Another one to read from it. Made anew in a forked child, which owns nothing of its parent's.
FileDescriptor read_lifeline() {
  static Lifeline& line = *new Lifeline;  // never destroyed: closing it says that we have ended
  const std::lock_guard lock(line.mutex);
  if (std::exchange(line.process, ::getpid()) != ::getpid()) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail_errno("pipe");
    line.reading = FileDescriptor(ends[0]);
    line.writing = FileDescriptor(ends[1]);
  }
  return duplicate(line.reading.get());
}

}  // namespace

FileDescriptor open_process(pid_t pid) {
  FileDescriptor process = pidfd_of(pid);
  if (process) return process;
  const bool is_offered = errno != ENOSYS && errno != EPERM;
  fail_errno(fmt::format("watching process {}{}", pid,
                         is_offered ? ""
                                    : " by pidfd_open, for which Linux 5.3 is needed, and in a "
                                      "container a seccomp profile that allows it"));
}

FileDescriptor open_own_process() {
  FileDescriptor process = pidfd_of(::getpid());
  return process ? std::move(process) : read_lifeline();
}

bool has_ended(const FileDescriptor& process) {
  pollfd watched{process.get(), POLLIN, 0};
  return ::poll(&watched, 1, 0) > 0;
}

}  // namespace hvd
