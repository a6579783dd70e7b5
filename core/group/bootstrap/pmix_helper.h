// A process beside this one that speaks PMIx in its place: under Open MPI 5, a process that has
// ended its PMIx cannot start MPI any more, nor with a PMIx of ours still open. It begins at the
// first errand, and stays until this process ends. It must stay: where a user of PMIx has asked
// something, left, and the same rank comes again, as MPI does, the daemon now and then keeps its
// next fence to itself, and MPI_Init waits for ever.
#pragma once

#include <string>
#include <vector>

#include "core/group/bootstrap/pmix_exchange.h"

namespace hvd::pmix {

/// Exchange::by_publishing() there. Throws the same, and what load_library() throws. One at a time.
std::string publish_by_helper(const std::vector<std::string>& library_paths, const Errand& errand);

}  // namespace hvd::pmix
