// A child process with pipes at its standard descriptors, whose end an event loop can wait for.
// Owned and used by one thread.
#pragma once

#include <array>
#include <string>

#include "core/transport/file_descriptor.h"
#include "launcher/process/spawn.h"

namespace hvd::launcher {

class PipedChild {
 public:
  /// Starts the program; fills in its `in`, `out` and `err`. Throws Error{internal} if the process
  /// cannot be made or watched; then no child is left.
  PipedChild(Program program, const ProcessDefaults& defaults);
  /// Kills and reaps the child unless wait() has reaped it.
  ~PipedChild();
  PipedChild(const PipedChild&) = delete;
  PipedChild& operator=(const PipedChild&) = delete;

  /// Readable once the child has ended (has_ended() of process_watch.h).
  const FileDescriptor& process() const { return process_; }
  /// Our ends: `in` for writing, the others for reading. None of them blocks.
  FileDescriptor in, out, err;
  /// The descriptors to watch for reading: process(), out and err; -1 for a closed one.
  std::array<int, 3> readable() const { return {process_.get(), out.get(), err.get()}; }

  void kill();
  /// Reaps a child that has ended. Returns the wait status.
  int wait();
  /// Once the child has ended: why the program could not be started (errno), or 0.
  int error() const { return spawned_.error(); }
  const std::string& path() const { return program_.path; }

 private:
  struct Pipes;
  PipedChild(Program program, const ProcessDefaults& defaults, Pipes pipes);

  const Program program_;
  const ProcessDefaults defaults_;  // like the program, read by the child until exec
  Spawned spawned_;
  bool reaped_ = false;
  FileDescriptor process_;
};

}  // namespace hvd::launcher
