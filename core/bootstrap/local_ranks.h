// Completes the local and cross ranks of a process. Launchers that do not set them leave them to be
// derived from the peer cards. Pure.
#pragma once

#include <vector>

#include "core/bootstrap/identity.h"
#include "core/bootstrap/peer_card.h"

namespace hvd {

/// Fills in the local rank and size, and the cross rank and size, where `identity` has none. The
/// cross rank counts the hosts that have a rank with this local rank. `cards`: [rank], empty in a
/// job of one rank.
void complete_local_ranks(Identity& identity, const std::vector<PeerCard>& cards);

}  // namespace hvd
