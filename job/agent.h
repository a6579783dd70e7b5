// The process between the launcher and the ranks. It starts the ranks, tells how they end, signals
// all that is below it when told to, and kills all of it when the launcher is gone. It decides
// nothing.
//
// It leads a session of its own, so that neither the terminal nor a signal to the launcher's
// process group reaches it, and it is a subreaper, so that no descendant escapes it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/transport/file_descriptor.h"
#include "job/spawn.h"

namespace hvd::job {

/// To the launcher: `exited` (rank, wait status), `not_started` (rank, errno), `skipped` (rank;
/// after a failed start), `nothing_left`. To the agent: `signal_all` (value: signal; SIGKILL until
/// nothing is left).
struct AgentMessage {
  enum class Kind : int32_t { exited, not_started, nothing_left, signal_all };
  Kind kind;
  int32_t rank;
  int32_t value;
};

struct AgentTask {
  std::vector<Program> ranks;
  ProcessDefaults defaults;
};

struct Agent {
  pid_t pid = -1;
  FileDescriptor socket;  ///< its end is the launcher's end; never blocks
};

/// Forks the agent, which starts the ranks at once. Their descriptors may then be closed here.
Agent start_agent(const AgentTask& task);

}  // namespace hvd::job
