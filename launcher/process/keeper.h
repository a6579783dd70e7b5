// The supervisor's key service on its host. It gives the job's key to the ranks' processes and to
// all processes below them, over an abstract unix socket, so that any wrapper may start a rank. The
// kernel identifies the process that asks; /proc shows the rank above it. Requests take a bounded
// time per turn of the supervisor, even from foreign processes. Only a number per rank is kept.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "core/transport/file_descriptor.h"
#include "core/transport/handshake.h"
#include "core/transport/key_request.h"
#include "core/transport/socket.h"

namespace hvd::launcher {

/// Returns a unique name for the socket.
std::string make_keeper_name();

/// Owned and used by one thread; never blocks, never throws.
class Keeper {
 public:
  /// Limit per call of answer(), so that the thread can continue its other work.
  static constexpr int kVisitorsPerTurn = 16;
  /// How long to ignore the socket after running out of descriptors.
  static constexpr std::chrono::milliseconds kBackOff{100};

  /// Listens; fd() is -1 on failure, with errno. The calling process must be above all ranks, and
  /// their orphans must become its children.
  Keeper(const std::string& name, const JobKey& key);

  /// Registers the process of this rank of this generation. Replaces the process that had the rank
  /// in an earlier generation, if any. In an elastic job, `rank` is the slot of the worker, and its
  /// requests tell in which generation it has its place by then.
  void add(int rank, uint32_t generation, pid_t process);
  /// The process has ended. Processes that it started may still initialize as its rank.
  void forget(pid_t process);

  /// Readable if a process is waiting.
  int fd() const { return listener_.get(); }
  /// Answers the waiting processes. Returns false if it could not accept a connection: call again
  /// after kBackOff.
  bool answer();

 private:
  struct RankHere {
    int rank;
    uint32_t generation;
    pid_t process;   ///< 0: it has ended
    uint32_t begun;  ///< how often any process has initialized as this rank
  };

  KeyAnswer answer_to(const Visitor& visitor);
  static KeyAnswer begin(const KeyRequest& request, RankHere& rank);
  /// Returns why the asking process does not get the key; empty: it does.
  std::string refusal(pid_t asker, const RankHere& rank) const;
  RankHere* find(int rank);

  JobKey key_;
  FileDescriptor listener_;
  std::vector<RankHere> ranks_;
};

}  // namespace hvd::launcher
