// Who this process is in the job, as its launcher says, and by which way its ranks find each other.
// One file a launcher: each recognises what its launcher leaves in the environment.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/knobs.h"

namespace hvd {

/// How the ranks of a job come to one Store and one key.
enum class Meeting : uint8_t {
  launcher,  ///< it serves the Store at `store_host` and hands the key to each rank
  local,     ///< all are on this machine: rank 0 serves, and is found by `job_name`
  pmi,       ///< rank 0 serves, and what it says is carried by the launcher, by PMI-1's text
  pmix,      ///< the same by PMIx
  caller,    ///< the same by whoever calls init: torch's TCPStore, mpi4py
  address,   ///< rank 0 serves at `store_host`; the key is that of HOROVOD_SECRET_FILE
};

struct Identity {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  int cross_rank = 0;
  int cross_size = 1;
  bool local_known = true;  ///< otherwise it follows from where the ranks turn out to be
  bool cross_known = true;
  std::string hostname = "localhost";
  std::string launcher = "nobody";  ///< for messages
  Meeting meeting = Meeting::launcher;
  std::string job_name;    ///< no other job on this machine has it now
  std::string store_host;  ///< empty: no Store, which a job of one rank does not need
  uint16_t store_port = 0;
  int meeting_fd = -1;  ///< of PMI; the launcher's, and stays open
  /// Where the job is a part of what the launcher started: the launcher's ranks, ascending.
  std::vector<int> members{};

  /// The number by which the launcher knows a rank of this job.
  int launcher_rank(int of) const {
    return members.empty() ? of : members[static_cast<size_t>(of)];
  }
};

/// Nothing set: rank 0 of 1. Throws Error{invalid_argument} naming the variable that is missing or
/// makes no sense.
Identity identity_from(const Environment& environment);

/// The same process in a job of only these ranks of `whole`. Throws Error{invalid_argument} where
/// it is not one of them, and for a rank twice or beyond `whole`.
Identity part_of(Identity whole, std::vector<int> members);

}  // namespace hvd
