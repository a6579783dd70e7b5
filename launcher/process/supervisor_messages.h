// The messages between a supervisor (supervisor.h) and the process that started it, over a socket
// that preserves message boundaries. Programs are sent in a memfd beside the message, since an
// environment may be larger than a message; so are their descriptors.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/transport/file_descriptor.h"
#include "launcher/process/spawn.h"

namespace hvd::launcher {

/// A worker's program, and its rank for the keeper (keeper.h): its slot in an elastic job.
struct WorkerProgram {
  Program program;
  int rank = 0;
  uint32_t generation = 0;
};

/// From the supervisor; `index` counts the programs in the order of their start: `started` (index,
/// pid), `exited` (index, wait status), `not_started` (index, errno; also after `started`),
/// `nothing_left` (value: how many programs it had been told to start).
///
/// To it: `start` (index of the first, value: StartPart), `signal_all` (value: signal), `signal`
/// (index, signal), `no_more_workers`.
struct SupervisorMessage {
  enum class Kind : int32_t {
    started,
    exited,
    not_started,
    nothing_left,
    start,
    signal_all,
    signal,
    no_more_workers,
  };
  Kind kind;
  int32_t index;
  int32_t value;
};

/// A start of many programs is split into several messages.
enum class StartPart : int32_t { first, further };

/// Each program needs three descriptors, and Linux passes at most 253 per message.
inline constexpr size_t kMaxProgramsPerMessage = 64;

/// Throws Error{internal}.
void send_start(int socket, const SupervisorMessage& message,
                std::span<const WorkerProgram> programs);

struct ReceivedMessage {
  SupervisorMessage message;
  std::vector<WorkerProgram> programs;      ///< of a `start`; they use the descriptors below
  std::vector<FileDescriptor> descriptors;  ///< three per program
};

/// Blocks. Returns none if the other end is closed or the message is malformed. Retries EINTR.
std::optional<ReceivedMessage> receive_message(int socket);

}  // namespace hvd::launcher
