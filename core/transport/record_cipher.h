// Authenticated encryption of the records of one direction of a connection, and the key exchange
// that its keys are made from (docs/decisions/0093). Standard constructions of libsodium: X25519,
// and AES-256-GCM where both CPUs have instructions for it, otherwise ChaCha20-Poly1305 (RFC 8439).
#pragma once

#include <array>
#include <memory>

#include "core/base/bytes.h"

namespace hvd {

using SecretBytes = std::array<std::byte, 32>;
using PublicKey = std::array<std::byte, 32>;

/// A key pair for one connection. Its secret is overwritten at the end.
class KeyExchange {
 public:
  KeyExchange();
  ~KeyExchange();
  KeyExchange(const KeyExchange&) = delete;
  KeyExchange& operator=(const KeyExchange&) = delete;

  const PublicKey& public_key() const { return public_; }
  /// The secret that both ends share. Throws Error{unauthorized} for a public key that no honest
  /// peer has.
  SecretBytes shared_with(const PublicKey& theirs) const;

 private:
  SecretBytes secret_;
  PublicKey public_;
};

enum class Cipher : uint8_t { chacha20_poly1305, aes256_gcm };
/// Returns whether this CPU has instructions for AES-256-GCM.
bool has_fast_aes();

/// The keys of one end of a connection.
struct SessionKeys {
  Cipher cipher = Cipher::chacha20_poly1305;
  SecretBytes send{};
  SecretBytes receive{};
};

/// Seals or opens records in order. The nonce is the number of the record, so that a record that is
/// repeated, dropped or moved does not open. Owned and used by one thread.
class RecordCipher {
 public:
  static constexpr size_t kTagBytes = 16;
  /// Both ends replace the key after this many records: a key encrypts at most 128 GiB, which is
  /// below the limit that TLS 1.3 has for AES-GCM (RFC 8446, 5.5).
  static constexpr uint64_t kRecordsPerKey = uint64_t{1} << 22;

  RecordCipher(Cipher cipher, const SecretBytes& key, uint64_t records_per_key = kRecordsPerKey);
  ~RecordCipher();
  RecordCipher(const RecordCipher&) = delete;
  RecordCipher& operator=(const RecordCipher&) = delete;

  /// Writes the sealed `plain` to `out`, which is kTagBytes larger and may begin where `plain`
  /// does. `header` is authenticated only.
  void seal(ConstBytes plain, ConstBytes header, MutableBytes out);
  /// Writes the plaintext to `out`, which is kTagBytes smaller than `sealed`. Returns false if the
  /// record is not the next one that the other end has sealed; then all later ones fail, too.
  [[nodiscard]] bool open(ConstBytes sealed, ConstBytes header, MutableBytes out);

 private:
  struct State;
  void start_record();

  const Cipher cipher_;
  const uint64_t records_per_key_;
  SecretBytes key_;
  uint64_t number_ = 0;  ///< of the next record
  bool failed_ = false;
  std::unique_ptr<State> state_;
};

/// Below the maximum of ChaCha20-Poly1305, 2^38 - 64.
inline constexpr size_t kMaxMessageBytes = size_t{1} << 37;
/// Seals a message by ChaCha20-Poly1305 into `out`, which is RecordCipher::kTagBytes larger. Throws
/// Error{invalid_argument} if it is too large.
void seal_message(const SecretBytes& key, uint64_t number, ConstBytes plain, MutableBytes out);
/// The reverse. Throws Error{invalid_argument} if `sealed` is not of this key and number.
void open_message(const SecretBytes& key, uint64_t number, ConstBytes sealed, MutableBytes out);

}  // namespace hvd
