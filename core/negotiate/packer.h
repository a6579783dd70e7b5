// Forms batches (tensor fusion). Only the Root decides the batch boundaries and sends them in the
// Verdict; if ranks fused their local queues, the batches would differ. Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "core/negotiate/signature.h"

namespace hvd {

/// An entry that is ready on every rank of a group and waits to be ordered: an operation, or the
/// end of a join.
struct Ready {
  SharedSignature signature{};
  bool join_done = false;
  int32_t last_joined = -1;
};
using ReadyQueue = std::deque<Ready>;

/// The next batch of a queue.
struct Cut {
  std::vector<size_t> taken{};  ///< positions in the queue, ascending, including the front
  uint64_t bytes = 0;
  bool full = false;  ///< nothing more fits: waiting cannot make the batch larger
};

/// Returns the batch that begins with the front of `queue`, which must be an operation, and
/// contains fusable operations up to `fusion_bytes`. A larger operation is a batch of its own. A
/// batch never extends beyond the end of a join.
Cut cut_batch(const ReadyQueue& queue, uint64_t fusion_bytes);

/// Removes the cut's operations from the queue and returns them in order.
std::vector<SharedSignature> take(ReadyQueue& queue, const Cut& cut);

}  // namespace hvd
