// Mutual authentication of the two ends of a new connection with the job's key. Each side sends a
// random challenge and answers with HMAC-SHA-256 over both challenges, its role and its Hello, so
// that answers cannot be reflected or replayed. The dialer proves first: an unauthenticated dialer
// receives only a random number. Messages of fixed size, no lengths on the wire (docs/wire.md). If
// both ends ask for encryption, the proofs carry public keys, from which both make the keys of the
// connection (docs/decisions/0093). Pure functions of bytes; socket.h has the blocking driver, Gate
// the non-blocking one.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/bytes.h"
#include "core/transport/digest.h"
#include "core/transport/record_cipher.h"

namespace hvd {

/// The job's secret: 32 random bytes. Never print or log it, or pass it on a command line or in the
/// environment.
struct JobKey {
  std::array<std::byte, 32> bytes{};
};

JobKey make_job_key();
/// Derives a key for `purpose`. It reveals neither the job's key nor the keys of other purposes.
JobKey derived_key(const JobKey& key, std::string_view purpose);
/// Fills `out` with unpredictable bytes from the kernel.
void fill_random(MutableBytes out);
/// Returns 32 random hexadecimal digits, for names that must be unique and unpredictable.
std::string random_digits();

inline constexpr size_t kMaxPurposeBytes = 16;

/// Whether a connection is encrypted after the handshake. `as_dialed`: as the dialer asks for.
enum class Encryption : uint8_t { off, on, as_dialed };

/// The purpose of a connection and the claimed identity of one end; the proof covers both.
struct Hello {
  std::string purpose;  ///< "store", "control", "data", "segment"
  int32_t rank = -1;    ///< the sender's global rank; -1: the launcher
  uint32_t generation = 0;
  Encryption encryption = Encryption::off;
};

/// One side of the handshake: pass received bytes to feed() and send what it returns.
class Handshake {
 public:
  /// Maximum of wanted().
  static constexpr size_t kMaxWantedBytes = 88;
  enum class Role : uint8_t { dialer, acceptor };
  Handshake(Role role, const JobKey& key, Hello mine);

  /// Returns the bytes to send first; empty for an acceptor.
  ByteVector start();
  /// Takes received bytes (any portion, at most wanted()); returns the bytes to send in answer,
  /// possibly none. Throws Error{unauthorized} if the peer does not know the key. No data of the
  /// peer is used before that check.
  ByteVector feed(ConstBytes received);
  /// Returns how many bytes are needed before the next answer; 0 when done. Do not read more.
  size_t wanted() const { return expected_bytes() - received_; }

  /// Returns whether the peer has sent its challenge: it speaks this protocol but is not
  /// authenticated yet.
  bool has_challenge() const { return step_ != Step::challenge; }

  /// The peer's Hello, once authenticated.
  const std::optional<Hello>& peer() const { return peer_; }
  /// The keys of the connection, once authenticated; nullopt if it is not encrypted.
  const std::optional<SessionKeys>& keys() const { return keys_; }
  /// Throws Error{internal} if the authenticated peer has another purpose or generation, and
  /// Error{invalid_argument} if only one end asks for encryption. Call it after the last answer is
  /// sent, so that the peer can report the reason as well.
  void check_agreement() const;

 private:
  static constexpr size_t kChallengeBytes = 40;  // magic, version, role, flags, random[32]
  static constexpr size_t kHelloBytes = 24;      // purpose[16], rank, generation
  static constexpr size_t kMaxProofBytes = kHelloBytes + sizeof(PublicKey) + sizeof(Digest);
  using Challenge = std::array<std::byte, kChallengeBytes>;
  static_assert(kMaxProofBytes == kMaxWantedBytes && kChallengeBytes < kMaxWantedBytes);
  enum class Step : uint8_t { challenge, proof, done };

  static Challenge make_challenge(Role role);
  void set_flags();
  void take_flags(uint16_t theirs);
  /// Both ends ask for it. Known after the peer's challenge.
  bool is_encrypted() const {
    return mine_.encryption == Encryption::on && peer_encryption_ == Encryption::on;
  }
  /// The size of the part of a proof that its MAC covers: a Hello and, with encryption, a key.
  size_t claim_bytes() const { return kHelloBytes + (is_encrypted() ? sizeof(PublicKey) : 0); }
  size_t expected_bytes() const;
  ByteVector take_challenge();
  ByteVector take_proof();
  ByteVector my_proof();
  void make_keys(const PublicKey& theirs);
  void put_challenges(Writer& text) const;
  Digest mac_of(Role prover, ConstBytes claim) const;

  Role role_;
  JobKey key_;
  Hello mine_;
  std::optional<Hello> peer_;
  Encryption peer_encryption_ = Encryption::off;
  Cipher cipher_ = Cipher::chacha20_poly1305;
  std::unique_ptr<KeyExchange> exchange_;  ///< made after the peer's challenge or proof
  std::optional<SessionKeys> keys_;
  Step step_ = Step::challenge;
  Challenge my_challenge_;
  Challenge their_challenge_{};
  std::array<std::byte, kMaxProofBytes> incoming_{};
  size_t received_ = 0;
};

}  // namespace hvd
