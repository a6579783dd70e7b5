#include "launcher/stream/console.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace hvd::launcher {

Console::Console(int fd) : fd_(fd) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return;
  is_socket_ = S_ISSOCK(status.st_mode);
  is_device_ = S_ISCHR(status.st_mode);
  if (!S_ISFIFO(status.st_mode) && !S_ISCHR(status.st_mode)) return;
  if ((fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY) return;  // replaces a closed descriptor
  // O_NONBLOCK belongs to the open file, which the user's shell and others share: reopen it. If
  // that is not allowed (a terminal of another user), writing blocks.
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  own_ = FileDescriptor(open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (own_) fd_ = own_.get();
}

/// True for a closed pipe or socket, or a terminal that was hung up.
bool Console::reader_has_gone(int error) const {
  return error == EPIPE || error == ECONNRESET || (error == EIO && is_device_);
}

void Console::pump() {
  while (has_waiting()) {
    const char* begin = waiting_.data() + written_;
    const ssize_t size = is_socket_ ? send(fd_, begin, waiting_bytes(), MSG_DONTWAIT | MSG_NOSIGNAL)
                                    : write(fd_, begin, waiting_bytes());
    if (size > 0) {
      written_ += static_cast<size_t>(size);
    } else if (size < 0 && errno == EAGAIN) {
      waiting_.erase(0, std::exchange(written_, 0));
      return;
    } else if (size == 0 || errno != EINTR) {
      if (size < 0 && !reader_has_gone(errno) && problem_ == 0) problem_ = errno;
      written_ = waiting_.size();
    }
  }
  waiting_.clear();
  written_ = 0;
}

void Console::drain() {
  for (pump(); has_waiting(); pump()) {
    pollfd room{fd_, POLLOUT, 0};
    poll(&room, 1, -1);
  }
}

}  // namespace hvd::launcher
