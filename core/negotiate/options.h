// Settings of the Root and the Hubs, the same on all ranks.
#pragma once

#include <cstdint>

#include "core/base/bytes.h"

namespace hvd {

struct NegotiateOptions {
  uint64_t fusion_bytes = 128 * MiB;  ///< a batch is cut at this size; 0: every operation runs alone
  uint32_t slot_capacity = 1024;      ///< slots kept a group; 0: none
  int window = 2;                     ///< full batches that may be outstanding; a partial one goes only when none is
};

}  // namespace hvd
