#include "launcher/stream/input_source.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "core/base/bytes.h"

namespace hvd::launcher {
namespace {

constexpr size_t kReadBytes = 64 * KiB;

}  // namespace

bool may_read(int fd) { return isatty(fd) == 0 || tcgetpgrp(fd) == getpgrp(); }

InputSource::InputSource(int fd) : fd_(fd), ended_(!may_read(fd)) {
  struct stat status {};
  if (fstat(fd, &status) != 0 || !(S_ISFIFO(status.st_mode) || S_ISCHR(status.st_mode))) return;
  // O_NONBLOCK belongs to the open file, which the user's shell and others share: reopen it.
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  own_ = FileDescriptor(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (own_) fd_ = own_.get();
}

std::optional<std::string> InputSource::read(size_t limit) {
  if (ended_) return "";
  if (limit == 0 || !may_read(fd_) || would_block()) return std::nullopt;
  std::string bytes(std::min(limit, kReadBytes), '\0');
  const ssize_t size = ::read(fd_, bytes.data(), bytes.size());
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
  ended_ = size <= 0;  // a closed terminal gives an error
  bytes.resize(static_cast<size_t>(std::max<ssize_t>(size, 0)));
  return bytes;
}

/// A reopened descriptor reports this by read(): poll() does not report the end of a pipe that was
/// reopened after its last writer had closed it.
bool InputSource::would_block() const {
  if (own_) return false;
  pollfd watched{fd_, POLLIN, 0};
  return poll(&watched, 1, 0) == 0;
}

}  // namespace hvd::launcher
