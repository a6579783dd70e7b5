// The standard input of rank 0 on an agent's host: a pipe, and received bytes that do not fit into
// it yet. The sender is told how much was taken, which limits what waits here.
#pragma once

#include <string>
#include <string_view>

#include "core/transport/file_descriptor.h"

namespace hvd::launcher {

class InputPipe {
 public:
  InputPipe();

  /// For the rank; -1 after release.
  int read_end() const { return read_end_.get(); }
  /// The rank has inherited it. Closes our copy, so that the end of the last reader is seen.
  void let_go() { read_end_.reset(); }

  /// No bytes: the end of the input.
  void add(std::string_view bytes);
  /// Returns how many bytes the pipe has taken since the last call.
  size_t pump();
  /// True if it has no reader any more, or the end was written.
  bool closed() const { return !write_end_; }
  /// The descriptor to watch for room; -1 if nothing waits.
  int fd() const;

 private:
  FileDescriptor read_end_, write_end_;
  std::string waiting_;
  bool ending_ = false;
};

}  // namespace hvd::launcher
