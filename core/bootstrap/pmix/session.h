// A session with the PMIx server of the launcher, and the two ways to broadcast a text by it:
//  - put, fence, get, and a second fence. Without the second one, a host that has finished may end
//    before it has answered the others.
//  - publish and look up, under Open MPI 5. The server there is mpirun itself, so no fence of ours
//    can interfere with one of MPI.
#pragma once

#include <span>
#include <string>

#include "core/bootstrap/pmix/library.h"
#include "core/bootstrap/start_deadline.h"

namespace hvd::pmix {

/// One call of Rendezvous::broadcast() on one rank.
struct BroadcastRequest {
  std::string name;
  std::string text;  ///< on rank 0
  bool is_rank_0 = false;
  int rank_0 = 0;  ///< the launcher's number of rank 0 of this job
  std::string launcher;
  StartDeadline deadline;
};

/// From PMIx_Init to PMIx_Finalize. Used by one thread. All functions block, and throw
/// Error{internal} with the error of PMIx, or Error{timed_out}.
class Session {
 public:
  explicit Session(const Library& library);

  std::string by_fence(const BroadcastRequest& request) const;
  std::string by_publishing(const BroadcastRequest& request) const;
  /// PMIx_Finalize; must be the last call. Its errors are ignored.
  void finish() const;

 private:
  /// Contains the name of the launcher's job, since published keys are visible to all jobs of a
  /// server: the jobs of a persistent one (prte), and those started by MPI_Comm_spawn.
  std::string published_key(const BroadcastRequest& request) const;
  void require(Status status, const char* function) const;
  /// Waits for the callback of `call`, which is given the callback's argument. `cause`: what to
  /// report if the callback does not come.
  template <class Call>
  std::string complete(const char* function, const std::string& cause,
                       const StartDeadline& deadline, Call call) const;
  void fence(std::span<const Info> options, const BroadcastRequest& request) const;
  std::string get(const BroadcastRequest& request) const;

  Library library_;
  Process self_{};
};

}  // namespace hvd::pmix
