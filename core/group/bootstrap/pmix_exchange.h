// What is said by PMIx to introduce the ranks, in one of two ways:
//  - put, fence, get, and a second fence, without which a host that has finished may leave before
//    it has answered the others.
//  - publish and look up, where there is Open MPI 5. The launcher has it, and the daemons need not
//    agree on anything, so that no fence of MPI can be disturbed by one of ours.
#pragma once

#include <span>
#include <string>

#include "core/group/bootstrap/meeting.h"
#include "core/group/bootstrap/pmix_library.h"

namespace hvd::pmix {

/// What is to be spread, and by whom.
struct Errand {
  std::string name;
  std::string text;  ///< of rank 0
  bool is_rank_0 = false;
  int rank_0 = 0;  ///< the launcher's number of rank 0 of this job
  std::string launcher;
  StartDeadline deadline;
};

/// A user of PMIx in this process, from PMIx_Init on. All throw Error{internal} with what PMIx
/// says, Error{timed_out}.
class Exchange {
 public:
  explicit Exchange(const Library& library);

  std::string by_fence(const Errand& errand) const;
  std::string by_publishing(const Errand& errand) const;
  /// PMIx_Finalize; nothing may follow. That it fails is of no use to know.
  void finish() const;

 private:
  /// What is published is known to all jobs of a daemon: those of one that stays (prte), and those
  /// that a job starts itself (MPI_Comm_spawn).
  std::string published_key(const Errand& errand) const;
  void require(Status status, const char* call) const;
  /// `call` is given an object for its callback, which it owns unless it fails. `absent`: what is
  /// so when it does not come back.
  template <class Call>
  std::string complete(const char* name, const std::string& absent, const StartDeadline& deadline,
                       Call call) const;
  void fence(std::span<const Info> options, const Errand& errand) const;
  std::string get(const Errand& errand) const;

  Library library_;
  Process self_{};
};

}  // namespace hvd::pmix
