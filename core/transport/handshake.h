// The mutual proof that both ends of a new connection know the job's key. Each side sends a random
// challenge and answers with HMAC-SHA-256 over both challenges, its role and its Hello, so that an
// answer can be neither reflected nor replayed elsewhere. The dialer speaks and proves first: a
// stranger who dials gets a random number and nothing else. Three fixed sizes, no lengths on the
// wire (docs/wire.md). Pure: bytes in, bytes out; blocking drivers for sockets are in socket.h, the
// other one is Gate.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/bytes.h"

namespace hvd {

/// The job's secret: 32 random bytes. Never printed, logged, put on a command line or in the
/// environment.
struct JobKey {
  std::array<std::byte, 32> bytes{};
};

JobKey make_job_key();
/// A key for `purpose` alone: neither the job's key nor that of another purpose follows from it.
JobKey derived_key(const JobKey& key, std::string_view purpose);
/// From the kernel: cannot be guessed.
void fill_random(MutableBytes out);

inline constexpr size_t kMaxPurposeBytes = 16;

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

  /// The bytes to send first; nothing for an acceptor.
  ByteVector start();
  /// Takes received bytes (any portion, at most wanted()); returns what to send in answer, maybe
  /// nothing. Throws Error{unauthorized} when the other side does not know the key; nothing of it
  /// is trusted before.
  ByteVector feed(ConstBytes received);
  /// How many more bytes are needed before the next answer; 0 when done. Never read more than this.
  size_t wanted() const { return expected_bytes() - received_; }

  /// The other side has sent its challenge: it speaks this protocol, and has proved nothing yet.
  bool has_challenge() const { return step_ != Step::challenge; }

  /// The other side's Hello once it is proved.
  const std::optional<Hello>& peer() const { return peer_; }
  /// Throws Error{internal} when the proved peer is of another purpose or generation. Called after
  /// the last answer is sent, so that the other side can tell why as well.
  void check_agreement() const;

 private:
  static constexpr size_t kChallengeBytes = 40;  // magic, version, role, zero, random[32]
  static constexpr size_t kHelloBytes = 24;      // purpose[16], rank, generation
  static constexpr size_t kMacBytes = 32;
  static constexpr size_t kProofBytes = kHelloBytes + kMacBytes;
  using Challenge = std::array<std::byte, kChallengeBytes>;
  using Mac = std::array<std::byte, kMacBytes>;
  enum class Step : uint8_t { challenge, proof, done };

  static Challenge make_challenge(Role role);
  size_t expected_bytes() const;
  ByteVector take_challenge();
  ByteVector take_proof();
  ByteVector my_proof() const;
  Mac mac_of(Role prover, ConstBytes hello) const;

  Role role_;
  JobKey key_;
  Hello mine_;
  std::optional<Hello> peer_;
  Step step_ = Step::challenge;
  Challenge my_challenge_;
  Challenge their_challenge_{};
  std::array<std::byte, kProofBytes> incoming_{};
  size_t received_ = 0;
};

}  // namespace hvd
