// The identity of a worker of horovodrun. It stays the same for the life of its process; the
// worker's rank may change from one generation of the job to the next
// (launcher/worker/assignment.h).
#pragma once

#include <compare>
#include <optional>
#include <string>
#include <string_view>

namespace hvd {

struct WorkerId {
  int host = 0;         ///< in the order of the job's hosts
  int slot = 0;         ///< on that host
  int incarnation = 0;  ///< how many earlier workers this slot has had
  auto operator<=>(const WorkerId&) const = default;
};

/// `<host>/<slot>/<incarnation>`, as in HOROVOD_WORKER.
std::string to_text(const WorkerId& worker);
std::optional<WorkerId> worker_from(std::string_view text);

}  // namespace hvd
