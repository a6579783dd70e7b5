// The owner of one open descriptor, and what happens to descriptors when the process forks. A data
// loader's forked workers would otherwise hold a dead rank's sockets open, and its peers would
// wait.
#pragma once

#include <utility>

namespace hvd {

/// What a child of fork() does with a descriptor. (posix_spawn and exec are served by O_CLOEXEC.)
enum class AtFork { close, keep };

/// Owns one descriptor; movable, not copyable. In a forked child those with AtFork::close are
/// closed before fork() returns, and the objects that held them own nothing there.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd, AtFork at_fork = AtFork::close);
  FileDescriptor(FileDescriptor&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), at_fork_(other.at_fork_) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this == &other) return *this;
    reset();
    fd_ = std::exchange(other.fd_, -1);
    at_fork_ = other.at_fork_;
    return *this;
  }
  ~FileDescriptor() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset();

 private:
  int fd_ = -1;
  AtFork at_fork_ = AtFork::close;
};

/// Another descriptor of the same file, closed on exec. Throws Error{internal}.
FileDescriptor duplicate(int fd);

}  // namespace hvd
