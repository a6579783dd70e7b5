// The mutual proof that both ends of a new connection know the job's key. Each side sends a random
// challenge and answers the other's with HMAC-SHA-256 over both challenges, its role and the
// purpose of the connection, so that an answer can be neither reflected nor replayed elsewhere.
// Pure: bytes in, bytes out; blocking drivers for sockets are in socket.h.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "core/base/bytes.h"

namespace hvd {

/// The job's secret: 32 random bytes. Never printed, logged, put on a command line or in the environment.
struct JobKey {
  std::array<std::byte, 32> bytes{};
};

JobKey make_job_key();

/// What a connection is for and who claims to be at this end; both are covered by the proof.
struct Hello {
  std::string purpose;  ///< "store", "control", "data", "segment"
  int32_t rank = -1;    ///< the sender's global rank; -1: the launcher
  uint32_t generation = 0;
};

/// One side of the handshake: feed it what arrives, send what it gives.
class Handshake {
 public:
  enum class Role : uint8_t { dialer, acceptor };
  Handshake(Role role, const JobKey& key, Hello mine);

  /// The bytes to send first.
  ByteVector start();
  /// Takes received bytes (any portion); returns what to send in answer, maybe nothing.
  /// Throws Error{unauthorized} when the other side does not know the key; nothing of it is trusted before.
  ByteVector feed(ConstBytes received);
  /// The other side's Hello once it is proved.
  const std::optional<Hello>& peer() const { return peer_; }
  /// How many more bytes are needed before the next answer; 0 when done. Never read more than this.
  size_t wanted() const;

 private:
  Role role_;
  JobKey key_;
  Hello mine_;
  std::optional<Hello> peer_;
  // … the rest is the implementer's
};

}  // namespace hvd
