#include "launcher/stream/input_pipe.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "core/base/error.h"

namespace hvd::launcher {

InputPipe::InputPipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) fail_errno("making a pipe");
  read_end_ = FileDescriptor(ends[0], AtFork::keep);
  write_end_ = FileDescriptor(ends[1]);
  fcntl(ends[1], F_SETFL, O_NONBLOCK);
}

void InputPipe::add(std::string_view bytes) {
  waiting_ += bytes;
  ending_ = ending_ || bytes.empty();
}

size_t InputPipe::pump() {
  size_t taken = 0;
  while (write_end_ && taken < waiting_.size()) {
    const ssize_t size = write(write_end_.get(), waiting_.data() + taken, waiting_.size() - taken);
    if (size >= 0) {
      taken += static_cast<size_t>(size);
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      write_end_.reset();  // it has no reader any more
    }
  }
  waiting_.erase(0, taken);
  if (ending_ && waiting_.empty()) write_end_.reset();
  return taken;
}

int InputPipe::fd() const { return waiting_.empty() ? -1 : write_end_.get(); }

}  // namespace hvd::launcher
