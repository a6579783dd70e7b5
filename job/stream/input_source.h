// The launcher's standard input, for a rank 0 on another host. Read without ever blocking the
// launcher, only as much as somebody has room for, and never while the terminal belongs to another
// job: that would stop this one.
#pragma once

#include <optional>
#include <string>

#include "core/transport/file_descriptor.h"

namespace hvd::job {

/// A terminal is read by its foreground alone: a job in the background must not take the shell's
/// input.
bool may_read(int fd);

class InputSource {
 public:
  /// `fd` stays the caller's. In the background of its terminal the input is at its end at once.
  explicit InputSource(int fd);

  /// What is there now, at most `limit` bytes; no bytes: the end, after which nothing more comes.
  std::optional<std::string> read(size_t limit);
  /// To be watched for edges, since there may be no room for what it has. A file cannot be watched
  /// and need not be.
  int fd() const { return fd_; }

 private:
  bool would_block() const;

  int fd_;
  FileDescriptor own_;  ///< the same pipe or terminal, opened again so that it can be non-blocking
  bool ended_ = false;
};

}  // namespace hvd::job
