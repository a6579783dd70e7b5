// Cuts batches (tensor fusion). The Root cuts, and the boundaries travel in the Verdict: ranks that
// fused what had queued up locally would fuse differently. Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "core/negotiate/signature.h"

namespace hvd {

/// What is ready on every rank of a group and waits for its turn: an operation, or the end of a
/// join.
struct Ready {
  SharedSignature signature{};
  bool join_done = false;
  int32_t last_joined = -1;
};
using ReadyQueue = std::deque<Ready>;

/// The next batch of a queue.
struct Cut {
  std::vector<size_t> taken{};  ///< places in the queue, ascending, the front among them
  uint64_t bytes = 0;
  bool full = false;  ///< nothing more would fit: waiting cannot make it larger
};

/// The batch that begins with the front of `queue`, which is an operation, and takes what may run
/// with it up to `fusion_bytes`. An operation larger than that is a batch of its own. Never reaches
/// over the end of a join.
Cut cut_batch(const ReadyQueue& queue, uint64_t fusion_bytes);

/// Takes the cut's operations out of the queue, in order.
std::vector<SharedSignature> take(ReadyQueue& queue, const Cut& cut);

}  // namespace hvd
