// A descriptor of the user (terminal, pipe, file) that is written without ever blocking the
// launcher: a paused terminal must not delay the end of the job.
#pragma once

#include <string>
#include <string_view>

#include "core/transport/file_descriptor.h"

namespace hvd::launcher {

class Console {
 public:
  explicit Console(int fd);

  void add(std::string_view bytes) { waiting_ += bytes; }
  std::string& buffer() { return waiting_; }
  /// Writes as much as possible now. Drops data that can never be written.
  void pump();
  /// Writes all data. Blocks until then.
  void drain();
  bool has_waiting() const { return written_ < waiting_.size(); }
  size_t waiting_bytes() const { return waiting_.size() - written_; }
  /// The first error of a write (errno); 0: none, or the reader has closed the pipe.
  int problem() const { return problem_; }
  /// The descriptor to watch for room.
  int fd() const { return fd_; }

 private:
  bool reader_has_gone(int error) const;

  int fd_;
  FileDescriptor own_;  ///< the same pipe or terminal, reopened as non-blocking
  bool is_socket_ = false;
  bool is_device_ = false;
  int problem_ = 0;
  std::string waiting_;
  size_t written_ = 0;
};

}  // namespace hvd::launcher
