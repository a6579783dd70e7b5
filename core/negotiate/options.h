// Settings of the Root and the Hubs, equal on all ranks.
#pragma once

#include <cstdint>

#include "core/base/bytes.h"

namespace hvd {

/// Rules of the negotiation protocol, all true in production. The simulator disables them one at a
/// time to verify that each prevents an error and that the simulator detects it.
struct Rules {
  bool retired_slots_are_kept = true;   ///< until all children have seen the retirement
  bool slot_numbers_are_fresh = true;   ///< never used again
  bool group_numbers_are_fresh = true;  ///< never used again
  bool join_done_queues = true;     ///< after everything that was completed with substituted ranks
  bool joins_count_in_sets = true;  ///< not only in the world
  bool substitution_is_counted = true;   ///< not inferred from "some rank has joined"
  bool fault_waits_for_all = true;       ///< a mismatch is reported when all ranks have submitted
  bool threshold_never_refuses = true;   ///< operations above the threshold run alone
  bool changes_are_sent_in_full = true;  ///< not as the previous slot of the name
  bool counts_outlive_retirement =
      true;  ///< a name is not announced again when its slot is retired
};

struct NegotiateOptions {
  uint64_t fusion_bytes = 128 * MiB;  ///< maximum size of a batch; 0: every operation runs alone
  uint32_t slot_capacity = 1024;      ///< number of slots per group; 0: none
  int window = 2;  ///< maximum number of outstanding full batches; a partial batch is sent only if
                   ///< none is outstanding
  Rules rules{};
};

}  // namespace hvd
