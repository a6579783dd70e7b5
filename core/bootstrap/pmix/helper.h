// A helper process that speaks PMIx for this one. Under Open MPI 5, a process that has finalized
// PMIx cannot start MPI any more, and neither can one that has a PMIx session of ours open. The
// helper is forked at the first request and lives as long as this process. It must not end earlier:
// if a PMIx client has made a request and ended, and the same rank connects again, as MPI does, the
// server sometimes withholds the next fence, so that MPI_Init never returns.
#pragma once

#include <string>
#include <vector>

#include "core/bootstrap/pmix/session.h"

namespace hvd::pmix {

/// Session::by_publishing() in the helper. Throws the same errors and those of load_library(). One
/// call at a time.
std::string publish_by_helper(const std::vector<std::string>& library_paths,
                              const BroadcastRequest& request);

}  // namespace hvd::pmix
