// RAII owner of a file descriptor, with its handling at fork(). Without it, forked data-loader
// workers would keep the sockets of a dead rank open and its peers would hang.
#pragma once

#include <utility>

namespace hvd {

/// Handling in a child of fork(). (For posix_spawn and exec, O_CLOEXEC is sufficient.)
enum class AtFork { close, keep };

/// Owns one descriptor; movable, not copyable. In a forked child, descriptors with AtFork::close
/// are closed before fork() returns, and their objects are empty there.
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

/// Duplicates a descriptor, with O_CLOEXEC. Throws Error{internal}.
FileDescriptor duplicate(int fd);

}  // namespace hvd
