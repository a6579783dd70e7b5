// Opens the TCP connections of one purpose between this rank and some others, all at the same time:
// the lower rank of a pair accepts, the higher one dials.
#pragma once

#include <map>
#include <vector>

#include "core/group/bootstrap/card.h"
#include "core/group/bootstrap/meeting.h"
#include "core/transport/file_descriptor.h"
#include "core/transport/handshake.h"
#include "core/transport/socket.h"

namespace hvd {

/// Where a rank may be reached, the best first.
struct Dial {
  int rank = 0;
  std::vector<Address> addresses;
};

struct PeerPlan {
  Hello mine;
  std::vector<Dial> dials;
  std::vector<int> accepts;  ///< ranks
  FileDescriptor listener;   ///< empty where nobody is accepted
};

/// The sockets, by rank. Throws Error{timed_out} and Error{peer_lost} naming the ranks that are
/// missing.
std::map<int, FileDescriptor> connect_peers(PeerPlan plan, const JobKey& key,
                                            const StartDeadline& deadline);

/// Where `mine` finds the rank of `theirs`: over loopback on its own machine.
std::vector<Address> addresses_of(const Card& theirs, uint16_t port, const Card& mine);

}  // namespace hvd
