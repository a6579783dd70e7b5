// Ordered, reliable bytes between two ranks. The three kinds (TCP, shared memory, in-memory for the
// simulator) behave alike; one contract test runs against all.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "core/base/bytes.h"

namespace hvd {

/// How messages call the other end of a connection. Ranks below 0 stand for the launcher.
inline std::string peer_name(int rank) {
  return rank < 0 ? "the launcher" : "rank " + std::to_string(rank);
}

/// One end of a connection. Owned and driven by one thread; never blocks.
class Link {
 public:
  virtual ~Link() = default;

  /// Sends as much as fits now; returns how many bytes went. 0: the peer is slow, or gone: a loss
  /// is told by receive_some alone, so that what the peer said before it went is read first.
  virtual size_t send_some(ConstBytes bytes) = 0;
  /// The same for pieces that follow one another; one call to the system where that is possible.
  virtual size_t send_pieces(std::span<const ConstBytes> pieces);

  /// Receives what is there, up to `room` (not empty); 0: nothing now.
  /// Throws Error{peer_lost, rank of the peer} when the other side is gone and all it sent is read.
  virtual size_t receive_some(MutableBytes room) = 0;

  /// What a Waiter watches, or -1 where the peer rings a doorbell instead.
  virtual int fd() const = 0;
};

inline size_t Link::send_pieces(std::span<const ConstBytes> pieces) {
  size_t sent = 0;
  for (const ConstBytes piece : pieces) {
    if (piece.empty()) continue;
    const size_t count = send_some(piece);
    sent += count;
    if (count < piece.size()) break;
  }
  return sent;
}

}  // namespace hvd
