// The exchange of peer cards, the first step of a job: every rank puts its card into the Store,
// rank 0 collects and compares them, and all ranks continue with the same table of cards or fail
// with the same error.
#pragma once

#include <cstdint>
#include <vector>

#include "core/bootstrap/peer_card.h"
#include "core/bootstrap/start_deadline.h"
#include "core/transport/store.h"

namespace hvd {

/// Collective over the ranks of the job; blocks. Returns all cards, [rank]. Throws Error{timed_out}
/// naming the ranks whose card is missing, Error{invalid_argument} when the cards cannot form one
/// job.
std::vector<PeerCard> exchange_cards(Store& store, const PeerCard& mine, uint32_t generation,
                                     const StartDeadline& deadline);

}  // namespace hvd
