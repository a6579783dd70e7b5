// Opens the TCP connections of one purpose between this rank and some others, all at the same time.
// The lower rank of a pair accepts, the higher one dials.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "core/bootstrap/abandonment.h"
#include "core/bootstrap/peer_card.h"
#include "core/bootstrap/start_deadline.h"
#include "core/transport/file_descriptor.h"
#include "core/transport/handshake.h"
#include "core/transport/socket.h"

namespace hvd {

/// A rank to dial.
struct Dial {
  int rank = 0;
  std::vector<Address> addresses;  ///< in order of preference; all are tried
};

struct PeerPlan {
  Hello mine;  ///< purpose, own rank, generation and encryption
  std::vector<Dial> dials;
  std::vector<int> accepts;            ///< ranks
  FileDescriptor listener;             ///< empty if there are none to accept
  Abandonment* abandonment = nullptr;  ///< borrowed; null: the job cannot be abandoned
};

/// An authenticated connection.
struct Connected {
  FileDescriptor socket;
  std::optional<SessionKeys> keys{};  ///< if it is encrypted
};

/// Blocks. Returns the connections by rank, authenticated with `key`. Throws Error{timed_out} or
/// Error{peer_lost} naming the ranks that are missing or cannot be reached; Error{peer_lost} if the
/// job is abandoned.
std::map<int, Connected> connect_peers(PeerPlan plan, const JobKey& key,
                                       const StartDeadline& deadline);

/// The addresses at which the rank of `mine` reaches that of `theirs`; loopback first on one
/// machine.
std::vector<Address> addresses_of(const PeerCard& theirs, uint16_t port, const PeerCard& mine);

}  // namespace hvd
