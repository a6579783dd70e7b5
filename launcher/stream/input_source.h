// The launcher's standard input, for a rank 0 on another host. Reads never block, read only as much
// as there is room for, and do not touch a terminal in the background, which would stop the
// launcher.
#pragma once

#include <optional>
#include <string>

#include "core/transport/file_descriptor.h"

namespace hvd::launcher {

/// Only the foreground reads a terminal: a background job must not take the shell's input.
bool may_read(int fd);

class InputSource {
 public:
  /// `fd` stays owned by the caller. In the background of its terminal, the input ends at once.
  explicit InputSource(int fd);

  /// Returns what is available, at most `limit` bytes; none if nothing is. No bytes: the end, which
  /// later calls return too.
  std::optional<std::string> read(size_t limit);
  /// Watch it edge-triggered, since there may be no room for its data. A file cannot be watched and
  /// need not be.
  int fd() const { return fd_; }

 private:
  bool would_block() const;

  int fd_;
  FileDescriptor own_;  ///< the same pipe or terminal, reopened as non-blocking
  bool ended_ = false;
};

}  // namespace hvd::launcher
