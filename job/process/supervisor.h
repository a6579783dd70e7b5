// The process between the launcher, or its agent on another host, and the ranks. It starts the
// ranks, tells how they end, signals all that is below it when told to, and kills all of it when
// whoever started it is gone. It decides nothing.
//
// It leads a session of its own, so that neither the terminal nor a signal to the launcher's
// process group reaches it, and it is a subreaper, so that no descendant escapes it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/transport/file_descriptor.h"
#include "job/process/spawn.h"

namespace hvd::job {

/// From the supervisor: `started` (index, pid), `exited` (index, wait status), `not_started`
/// (index, errno; also after `started`), `nothing_left`. To it: `signal_all` (value: signal;
/// SIGKILL until nothing is left).
struct SupervisorMessage {
  enum class Kind : int32_t { started, exited, not_started, nothing_left, signal_all };
  Kind kind;
  int32_t index;  ///< in SupervisorTask::programs
  int32_t value;
};

struct SupervisorTask {
  std::vector<Program> programs;
  ProcessDefaults defaults;
};

struct Supervisor {
  pid_t pid = -1;
  FileDescriptor socket;  ///< its end is the starter's end; never blocks
};

/// Forks the supervisor, which starts the programs at once. Their descriptors may then be closed
/// here. Where one cannot be started for want of processes, it and those behind it are
/// `not_started`. Throws Error{internal} when there can be no supervisor.
Supervisor start_supervisor(const SupervisorTask& task);

}  // namespace hvd::job
