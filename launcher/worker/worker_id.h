// The identity of a worker. It stays the same for the life of its process; the worker's rank may
// change from one generation of the job to the next (assignment.h).
#pragma once

#include <compare>

namespace hvd::launcher {

struct WorkerId {
  int host = 0;         ///< in the order of the job's hosts
  int slot = 0;         ///< on that host
  int incarnation = 0;  ///< how many earlier workers this slot has had
  auto operator<=>(const WorkerId&) const = default;
};

}  // namespace hvd::launcher
