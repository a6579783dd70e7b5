// Who this process is in the job, as its launcher says. One file a launcher: each recognises what
// its launcher leaves in the environment.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/knobs.h"

namespace hvd {

struct Identity {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  int cross_rank = 0;
  int cross_size = 1;
  std::string hostname = "localhost";
  std::string store_host;  ///< empty: no Store, which a job of one rank does not need
  uint16_t store_port = 0;
};

/// Nothing set: rank 0 of 1. Throws Error{invalid_argument} naming the variable that is missing or
/// makes no sense.
Identity identity_from(const Environment& environment);

}  // namespace hvd
