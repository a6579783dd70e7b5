// Settings of the Root and the Hubs, the same on all ranks.
#pragma once

#include <cstdint>

#include "core/base/bytes.h"

namespace hvd {

/// The rules of agreement that the machines could be built without, all true in production. The
/// simulator removes them one at a time to show what each prevents, and thereby that it would
/// notice.
struct Rules {
  bool retired_slots_are_kept = true;    ///< until all children have seen the retirement
  bool slot_numbers_are_fresh = true;    ///< never used again
  bool group_numbers_are_fresh = true;   ///< never used again
  bool join_done_queues = true;          ///< behind everything that was completed with stand-ins
  bool joins_count_in_sets = true;       ///< and not in the world alone
  bool substitution_is_counted = true;   ///< and not guessed from "somebody has joined"
  bool fault_waits_for_all = true;       ///< a mismatch is told when all ranks have submitted
  bool threshold_never_refuses = true;   ///< what is larger than the threshold runs alone
  bool changes_are_sent_in_full = true;  ///< and not as the slot that the name had
  bool counts_outlive_retirement =
      true;  ///< nobody announces a name again because its slot is retired
};

struct NegotiateOptions {
  uint64_t fusion_bytes =
      128 * MiB;                  ///< a batch is cut at this size; 0: every operation runs alone
  uint32_t slot_capacity = 1024;  ///< slots kept a group; 0: none
  int window = 2;  ///< full batches that may be outstanding; a partial one goes only when none is
  Rules rules{};
};

}  // namespace hvd
