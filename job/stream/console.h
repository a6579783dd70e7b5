// A descriptor of the user's (terminal, pipe, file) that is written without ever blocking the
// launcher: a paused terminal must not keep it from ending the job.
#pragma once

#include <string>
#include <string_view>

#include "core/transport/file_descriptor.h"

namespace hvd::job {

class Console {
 public:
  explicit Console(int fd);

  void add(std::string_view bytes) { waiting_ += bytes; }
  std::string& buffer() { return waiting_; }
  /// Writes what can be written now. When the reader is gone, the rest is dropped.
  void pump();
  /// Writes all of it, for as long as that takes.
  void drain();
  bool has_waiting() const { return written_ < waiting_.size(); }
  size_t waiting_bytes() const { return waiting_.size() - written_; }
  /// What to watch for room.
  int fd() const { return fd_; }

 private:
  int fd_;
  FileDescriptor own_;  ///< the same pipe or terminal, opened again so that it can be non-blocking
  bool is_socket_ = false;
  std::string waiting_;
  size_t written_ = 0;
};

}  // namespace hvd::job
