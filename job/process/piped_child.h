// A child process with a pipe at each of its standard descriptors, whose end can be waited for in
// an event loop. Owned and used by one thread.
#pragma once

#include <array>
#include <string>

#include "core/transport/file_descriptor.h"
#include "job/process/spawn.h"

namespace hvd::job {

class PipedChild {
 public:
  /// Starts the program; its `in`, `out` and `err` are filled in here. Throws Error{internal} when
  /// there can be no such process, or it cannot be watched; then none is left.
  PipedChild(Program program, const ProcessDefaults& defaults);
  /// Kills and reaps it unless wait() has.
  ~PipedChild();
  PipedChild(const PipedChild&) = delete;
  PipedChild& operator=(const PipedChild&) = delete;

  /// Readable once the child has ended (has_ended() of process_watch.h).
  const FileDescriptor& process() const { return process_; }
  /// Our ends: we write the first and read the others. None of them blocks.
  FileDescriptor in, out, err;
  /// Where something may be seen: process(), out and err; -1 for one that is closed.
  std::array<int, 3> readable() const { return {process_.get(), out.get(), err.get()}; }

  void kill();
  /// Of one that has ended: reaps it. Returns the wait status.
  int wait();
  /// Of one that has ended: why it never became the program (errno), or 0.
  int error() const { return spawned_.error(); }
  const std::string& path() const { return program_.path; }

 private:
  struct Pipes;
  PipedChild(Program program, const ProcessDefaults& defaults, Pipes pipes);

  const Program program_;
  const ProcessDefaults defaults_;  // like the program, read by the child on its way to exec
  Spawned spawned_;
  bool reaped_ = false;
  FileDescriptor process_;
};

}  // namespace hvd::job
