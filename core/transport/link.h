// An ordered, reliable byte stream between two ranks. The three kinds (TCP, shared memory,
// in-memory for the simulator) behave alike; one contract test runs against all.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "core/base/bytes.h"

namespace hvd {

/// The name of a peer in messages. Negative ranks denote the launcher.
inline std::string peer_name(int rank) {
  return rank < 0 ? "the launcher" : "rank " + std::to_string(rank);
}

/// One end of a connection. Owned and used by one thread; never blocks.
class Link {
 public:
  virtual ~Link() = default;

  /// Sends as much as the link accepts; returns the number of bytes sent. The next call continues
  /// after them: a link may have taken more bytes than it has reported. Returns 0 if the peer is
  /// slow or lost: only receive_some() reports a loss, so that data sent before it is read first.
  virtual size_t send_some(ConstBytes bytes) = 0;
  /// Sends consecutive pieces, with one system call if possible; otherwise as send_some().
  virtual size_t send_pieces(std::span<const ConstBytes> pieces);

  /// Receives the available bytes, up to the size of `room` (not empty); returns 0 if there are
  /// none now. Throws Error{peer_lost} if the connection has ended, in this call and in all later
  /// ones.
  virtual size_t receive_some(MutableBytes room) = 0;

  /// Returns whether the next receive_some() returns bytes although fd() may not be readable.
  virtual bool holds_bytes() const { return false; }

  /// The descriptor for a Waiter, or -1 if the peer rings a doorbell instead.
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
