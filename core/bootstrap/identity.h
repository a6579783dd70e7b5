// The identity of this process in its job, read from the environment that the launcher set, and the
// method by which the ranks find each other. One file per launcher (launchers/).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/knobs.h"

namespace hvd {

/// How the ranks of a job get the address of its Store, and its key.
enum class RendezvousMethod : uint8_t {
  launcher,  ///< the launcher serves the Store at `store_host` and gives each rank the key
  local,     ///< all ranks on this machine: rank 0 serves, and listens under `job_name`
  pmi,       ///< rank 0 serves; the launcher carries its address and key by PMI-1
  pmix,      ///< the same by PMIx
  caller,    ///< the same by the caller of init: torch's TCPStore, mpi4py
  address,   ///< rank 0 serves at `store_host`; the key comes from HOROVOD_SECRET_FILE
};

struct Identity {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  int cross_rank = 0;
  int cross_size = 1;
  bool local_known = true;  ///< false: derived from the peer cards later (local_ranks.h)
  bool cross_known = true;  ///< the same
  std::string hostname = "localhost";
  std::string launcher = "nobody";  ///< for messages
  RendezvousMethod rendezvous = RendezvousMethod::launcher;
  std::string job_name;    ///< unique among the jobs that run on this machine; empty: no launcher
  std::string store_host;  ///< empty: no Store, which a job of one rank does not need
  uint16_t store_port = 0;
  int pmi_fd = -1;  ///< connection to the launcher (PMI-1); belongs to it and stays open
  /// The launcher's ranks that form this job, ascending; empty: all of them.
  std::vector<int> members{};
  std::optional<int> slot{};  ///< in an elastic job: of this worker on its host
  /// In an elastic job: the launcher's generation in which the worker has this rank.
  std::optional<uint32_t> generation{};

  /// The launcher's number of a rank of this job.
  int launcher_rank(int of) const {
    return members.empty() ? of : members[static_cast<size_t>(of)];
  }
  /// The number of this process at its launcher, unique on its host at any time.
  int process_number() const { return slot.value_or(launcher_rank(rank)); }
};

/// Rank 0 of 1 if no launcher has set anything. Throws Error{invalid_argument} naming the variable
/// that is missing or invalid.
Identity identity_from(const Environment& environment);

/// The identity of the same process in a job of only these ranks of `whole`. Throws
/// Error{invalid_argument} if it is not one of them, or if a rank is given twice or not in `whole`.
Identity part_of(Identity whole, std::vector<int> members);

}  // namespace hvd
