// Rendezvous of the ranks of a job on one machine: rank 0 listens at an abstract unix socket whose
// name all ranks derive from the name of the job. The kernel tells each side the user of the other
// one, so processes of other users can neither read the root address nor fake it. They can connect,
// as often as they like; that costs rank 0 a bounded time per turn and one line in the log.
#pragma once

#include <chrono>
#include <string>

#include "core/base/log.h"
#include "core/bootstrap/start_deadline.h"
#include "core/transport/file_descriptor.h"

namespace hvd {

/// The listening side, on rank 0. Owned and driven by one thread; never blocks.
class RendezvousListener {
 public:
  /// Most connections that one call of answer() accepts, so that its thread can do other work.
  static constexpr int kConnectionsPerTurn = 16;
  /// How long to wait before the next answer() if the process is out of descriptors.
  static constexpr std::chrono::milliseconds kBackOff{100};

  /// `root_address`: the text that is sent to the other ranks. Throws Error{internal} if another
  /// process listens for a job of this name.
  RendezvousListener(const std::string& job_name, std::string root_address);

  /// Readable when a connection is waiting.
  int fd() const { return listener_.get(); }
  /// Accepts up to kConnectionsPerTurn connections, sends the root address to processes of this
  /// user and closes them all. False if a connection could not be accepted: call again after
  /// kBackOff.
  bool answer();

 private:
  FileDescriptor listener_;
  std::string root_address_;
  LimitedLog strangers_{1};
  LimitedLog failures_{1};
};

/// Gets the root address from rank 0, which may start to listen later. Blocks. Throws
/// Error{timed_out}, Error{peer_lost}, and Error{unauthorized} if another user listens.
std::string request_root_address(const std::string& job_name, const StartDeadline& deadline);

}  // namespace hvd
