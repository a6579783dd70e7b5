#include "core/transport/record_cipher.h"

#include <fmt/core.h>

#include <cstring>

#include "core/base/assert.h"
#include "core/base/error.h"
#include "core/transport/digest.h"
#include "core/transport/sodium.h"

namespace hvd {
namespace {

static_assert(sizeof(PublicKey) == crypto_scalarmult_BYTES);
static_assert(sizeof(SecretBytes) == crypto_scalarmult_SCALARBYTES);
static_assert(sizeof(SecretBytes) == crypto_aead_aes256gcm_KEYBYTES);
static_assert(sizeof(SecretBytes) == crypto_aead_chacha20poly1305_ietf_KEYBYTES);
static_assert(RecordCipher::kTagBytes == crypto_aead_aes256gcm_ABYTES);
static_assert(RecordCipher::kTagBytes == crypto_aead_chacha20poly1305_ietf_ABYTES);

/// 12 bytes: the number of the record, then zeros.
using Nonce = std::array<std::byte, 12>;
static_assert(sizeof(Nonce) == crypto_aead_aes256gcm_NPUBBYTES);
static_assert(sizeof(Nonce) == crypto_aead_chacha20poly1305_ietf_NPUBBYTES);

Nonce nonce_of(uint64_t number) {
  Nonce nonce{};
  std::memcpy(nonce.data(), &number, sizeof number);
  return nonce;
}

void seal_by_chacha20(const SecretBytes& key, uint64_t number, ConstBytes plain, ConstBytes header,
                      MutableBytes out) {
  const Nonce nonce = nonce_of(number);
  ::crypto_aead_chacha20poly1305_ietf_encrypt(sodium_out(out), nullptr, sodium_in(plain),
                                              plain.size(), sodium_in(header), header.size(),
                                              nullptr, sodium_in(nonce), sodium_in(key));
}

bool open_by_chacha20(const SecretBytes& key, uint64_t number, ConstBytes sealed, ConstBytes header,
                      MutableBytes out) {
  const Nonce nonce = nonce_of(number);
  return ::crypto_aead_chacha20poly1305_ietf_decrypt(
             sodium_out(out), nullptr, nullptr, sodium_in(sealed), sealed.size(), sodium_in(header),
             header.size(), sodium_in(nonce), sodium_in(key)) == 0;
}

}  // namespace

KeyExchange::KeyExchange() {
  start_sodium();
  ::randombytes_buf(secret_.data(), secret_.size());
  if (::crypto_scalarmult_base(sodium_out(public_), sodium_in(secret_)) != 0)
    fail(Code::internal, "libsodium could not make a key pair");
}

KeyExchange::~KeyExchange() { ::sodium_memzero(secret_.data(), secret_.size()); }

SecretBytes KeyExchange::shared_with(const PublicKey& theirs) const {
  SecretBytes shared;
  if (::crypto_scalarmult(sodium_out(shared), sodium_in(secret_), sodium_in(theirs)) != 0)
    fail(Code::unauthorized, "the peer of a new connection sent an invalid public key");
  return shared;
}

bool has_fast_aes() {
  start_sodium();
  return ::crypto_aead_aes256gcm_is_available() == 1;
}

/// The expanded key of AES.
struct RecordCipher::State {
  crypto_aead_aes256gcm_state aes;
};

RecordCipher::RecordCipher(Cipher cipher, const SecretBytes& key, uint64_t records_per_key)
    : cipher_(cipher), records_per_key_(records_per_key), key_(key) {
  start_sodium();
  if (cipher_ != Cipher::aes256_gcm) return;
  HVD_ASSERT(has_fast_aes());
  state_ = std::make_unique<State>();
  ::crypto_aead_aes256gcm_beforenm(&state_->aes, sodium_in(key_));
}

RecordCipher::~RecordCipher() {
  ::sodium_memzero(key_.data(), key_.size());
  if (state_) ::sodium_memzero(state_.get(), sizeof *state_);
}

/// Replaces the key if it has served for long enough. The old key does not follow from the new one.
void RecordCipher::start_record() {
  if (number_ == 0 || number_ % records_per_key_ != 0) return;
  key_ = hmac_sha256(key_, as_bytes("horovod next key"));
  if (state_) ::crypto_aead_aes256gcm_beforenm(&state_->aes, sodium_in(key_));
}

void RecordCipher::seal(ConstBytes plain, ConstBytes header, MutableBytes out) {
  HVD_ASSERT(out.size() == plain.size() + kTagBytes);
  start_record();
  const uint64_t number = number_++;
  if (cipher_ != Cipher::aes256_gcm) return seal_by_chacha20(key_, number, plain, header, out);
  const Nonce nonce = nonce_of(number);
  ::crypto_aead_aes256gcm_encrypt_afternm(sodium_out(out), nullptr, sodium_in(plain), plain.size(),
                                          sodium_in(header), header.size(), nullptr,
                                          sodium_in(nonce), &state_->aes);
}

bool RecordCipher::open(ConstBytes sealed, ConstBytes header, MutableBytes out) {
  HVD_ASSERT(sealed.size() == out.size() + kTagBytes);
  if (failed_) return false;
  start_record();
  const uint64_t number = number_++;
  if (cipher_ == Cipher::aes256_gcm) {
    const Nonce nonce = nonce_of(number);
    failed_ = ::crypto_aead_aes256gcm_decrypt_afternm(
                  sodium_out(out), nullptr, nullptr, sodium_in(sealed), sealed.size(),
                  sodium_in(header), header.size(), sodium_in(nonce), &state_->aes) != 0;
  } else {
    failed_ = !open_by_chacha20(key_, number, sealed, header, out);
  }
  return !failed_;
}

void seal_message(const SecretBytes& key, uint64_t number, ConstBytes plain, MutableBytes out) {
  HVD_ASSERT(out.size() == plain.size() + RecordCipher::kTagBytes);
  if (plain.size() > kMaxMessageBytes)
    fail(Code::invalid_argument,
         fmt::format("a message of {} bytes cannot be encrypted: the limit is {}", plain.size(),
                     kMaxMessageBytes));
  start_sodium();
  seal_by_chacha20(key, number, plain, {}, out);
}

void open_message(const SecretBytes& key, uint64_t number, ConstBytes sealed, MutableBytes out) {
  HVD_ASSERT(sealed.size() == out.size() + RecordCipher::kTagBytes);
  start_sodium();
  const bool is_opened =
      out.size() <= kMaxMessageBytes && open_by_chacha20(key, number, sealed, {}, out);
  if (!is_opened)
    fail(Code::invalid_argument,
         fmt::format("message {} was not encrypted with this key and number", number));
}

}  // namespace hvd
