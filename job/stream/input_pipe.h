// What rank 0 of another host reads: a pipe, and what has come for it but does not fit yet. Who
// sends is told how much has been taken, so what waits here has a limit.
#pragma once

#include <string>
#include <string_view>

#include "core/transport/file_descriptor.h"

namespace hvd::job {

class InputPipe {
 public:
  InputPipe();

  /// For the rank; -1 once let go.
  int read_end() const { return read_end_.get(); }
  /// The rank has it. Now it is seen when nobody reads any more.
  void let_go() { read_end_.reset(); }

  /// No bytes: the end.
  void add(std::string_view bytes);
  /// How much the pipe has taken since the last call.
  size_t pump();
  /// Nobody reads any more, or the end was written.
  bool closed() const { return !write_end_; }
  /// What to watch for room; -1: nothing waits.
  int fd() const;

 private:
  FileDescriptor read_end_, write_end_;
  std::string waiting_;
  bool ending_ = false;
};

}  // namespace hvd::job
