#include "core/transport/handshake.h"

#include <fmt/core.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>

#include "core/base/assert.h"
#include "core/base/error.h"
#include "core/transport/link.h"

namespace hvd {
namespace {

constexpr uint32_t kMagic = 0x4a445648;  // "HVDJ"
constexpr uint8_t kVersion = 2;          // version 1 had no flags
constexpr size_t kRandomBytes = 32;
// Flags of a challenge. The second one is set only with the first.
constexpr uint16_t kEncrypted = 1, kHasAes = 2;
constexpr size_t kFlagsPlace = 6;

[[noreturn]] void refuse() {
  fail(Code::unauthorized, "the peer of a new connection does not know this job's key");
}

ByteVector bytes_of(const Hello& hello) {
  Writer out;
  out.put_bytes(as_bytes(hello.purpose));
  for (size_t i = hello.purpose.size(); i < kMaxPurposeBytes; ++i) out.put(uint8_t{0});
  out.put(hello.rank);
  out.put(hello.generation);
  return out.take();
}

Hello hello_of(ConstBytes bytes) {
  Reader in(bytes);
  const auto padded = as_text(in.take(kMaxPurposeBytes));
  Hello hello;
  hello.purpose = padded.substr(0, padded.find('\0'));
  hello.rank = in.get<int32_t>();
  hello.generation = in.get<uint32_t>();
  return hello;
}

Handshake::Role other(Handshake::Role role) {
  using enum Handshake::Role;
  return role == dialer ? acceptor : dialer;
}

}  // namespace

void fill_random(MutableBytes out) {
  for (size_t done = 0; done < out.size();) {
    const ssize_t count = ::getrandom(out.data() + done, out.size() - done, 0);
    if (count < 0 && errno != EINTR) fail_errno("getrandom (Linux 3.17)");
    if (count > 0) done += static_cast<size_t>(count);
  }
}

std::string random_digits() {
  std::array<uint64_t, 2> chance{};
  fill_random(std::as_writable_bytes(std::span(chance)));
  return fmt::format("{:016x}{:016x}", chance[0], chance[1]);
}

JobKey make_job_key() {
  JobKey key;
  fill_random(key.bytes);
  return key;
}

JobKey derived_key(const JobKey& key, std::string_view purpose) {
  Writer text;
  text.put_bytes(as_bytes("horovod derived key "));  // differs from the prefix of a handshake
  text.put_bytes(as_bytes(purpose));
  return {hmac_sha256(key.bytes, text.take())};
}

Handshake::Handshake(Role role, const JobKey& key, Hello mine)
    : role_(role), key_(key), mine_(std::move(mine)), my_challenge_(make_challenge(role)) {
  HVD_ASSERT(mine_.purpose.size() <= kMaxPurposeBytes);
  HVD_ASSERT(role_ == Role::acceptor || mine_.encryption != Encryption::as_dialed);
  set_flags();
}

Handshake::Challenge Handshake::make_challenge(Role role) {
  Writer out;
  out.put(kMagic);
  out.put(kVersion);
  out.put(role);
  const ByteVector fixed = out.take();
  HVD_ASSERT(fixed.size() == kFlagsPlace);
  Challenge challenge{};
  std::copy(fixed.begin(), fixed.end(), challenge.begin());
  fill_random(MutableBytes(challenge).last(kRandomBytes));
  return challenge;
}

void Handshake::set_flags() {
  uint16_t flags = 0;
  if (mine_.encryption == Encryption::on)
    flags = static_cast<uint16_t>(kEncrypted | (has_fast_aes() ? kHasAes : 0));
  std::memcpy(my_challenge_.data() + kFlagsPlace, &flags, sizeof flags);
}

/// The proofs cover both challenges, so an attacker cannot change the flags.
void Handshake::take_flags(uint16_t theirs) {
  if (theirs != 0 && theirs != kEncrypted && theirs != (kEncrypted | kHasAes)) refuse();
  const bool wanted = theirs != 0;
  if (mine_.encryption == Encryption::as_dialed) {
    mine_.encryption = wanted ? Encryption::on : Encryption::off;
    set_flags();
  }
  peer_encryption_ = wanted ? Encryption::on : Encryption::off;
  if (is_encrypted() && (theirs & kHasAes) != 0 && has_fast_aes()) cipher_ = Cipher::aes256_gcm;
}

ByteVector Handshake::start() {
  if (role_ == Role::acceptor) return {};
  return {my_challenge_.begin(), my_challenge_.end()};
}

size_t Handshake::expected_bytes() const {
  switch (step_) {
    case Step::challenge:
      return kChallengeBytes;
    case Step::proof:
      return claim_bytes() + sizeof(Digest);
    case Step::done:
      break;
  }
  return 0;
}

ByteVector Handshake::feed(ConstBytes received) {
  HVD_ASSERT(received.size() <= wanted());
  std::copy(received.begin(), received.end(), incoming_.begin() + received_);
  received_ += received.size();
  if (wanted() > 0 || step_ == Step::done) return {};
  received_ = 0;
  return step_ == Step::challenge ? take_challenge() : take_proof();
}

ByteVector Handshake::take_challenge() {
  std::copy_n(incoming_.begin(), kChallengeBytes, their_challenge_.begin());
  const Challenge expected = make_challenge(other(role_));
  if (!std::equal(expected.begin(), expected.begin() + kFlagsPlace, their_challenge_.begin()))
    refuse();
  uint16_t flags;
  std::memcpy(&flags, their_challenge_.data() + kFlagsPlace, sizeof flags);
  take_flags(flags);
  step_ = Step::proof;
  if (role_ == Role::dialer) return my_proof();
  return {my_challenge_.begin(), my_challenge_.end()};
}

ByteVector Handshake::take_proof() {
  const auto claim = ConstBytes(incoming_).first(claim_bytes());
  const Digest expected = mac_of(other(role_), claim);
  if (!are_equal_in_constant_time(expected,
                                  ConstBytes(incoming_).subspan(claim.size(), sizeof(Digest))))
    refuse();
  ByteVector answer;
  if (role_ == Role::acceptor) answer = my_proof();
  if (is_encrypted()) {
    PublicKey theirs;
    std::ranges::copy(claim.subspan(kHelloBytes), theirs.begin());
    make_keys(theirs);
  }
  peer_ = hello_of(claim.first(kHelloBytes));
  peer_->encryption = peer_encryption_;
  step_ = Step::done;
  return answer;
}

ByteVector Handshake::my_proof() {
  ByteVector proof = bytes_of(mine_);
  if (is_encrypted()) {
    exchange_ = std::make_unique<KeyExchange>();
    const PublicKey& key = exchange_->public_key();
    proof.insert(proof.end(), key.begin(), key.end());
  }
  const Digest mac = mac_of(role_, proof);
  proof.insert(proof.end(), mac.begin(), mac.end());
  return proof;
}

/// Only who knows the job's key and one of the two secrets can compute them.
void Handshake::make_keys(const PublicKey& theirs) {
  const bool dialed = role_ == Role::dialer;
  const PublicKey& mine = exchange_->public_key();
  Writer text;
  text.put_bytes(as_bytes("horovod session"));
  put_challenges(text);
  text.put_bytes(dialed ? mine : theirs);
  text.put_bytes(dialed ? theirs : mine);
  text.put_bytes(exchange_->shared_with(theirs));
  const Digest secret = hmac_sha256(key_.bytes, text.take());
  const Digest of_dialer = hmac_sha256(secret, as_bytes("horovod sent by the dialer"));
  const Digest of_acceptor = hmac_sha256(secret, as_bytes("horovod sent by the acceptor"));
  keys_ = SessionKeys{.cipher = cipher_,
                      .send = dialed ? of_dialer : of_acceptor,
                      .receive = dialed ? of_acceptor : of_dialer};
  exchange_.reset();
}

void Handshake::put_challenges(Writer& text) const {
  const bool dialed = role_ == Role::dialer;
  text.put_bytes(dialed ? my_challenge_ : their_challenge_);
  text.put_bytes(dialed ? their_challenge_ : my_challenge_);
}

Digest Handshake::mac_of(Role prover, ConstBytes claim) const {
  Writer text;
  text.put_bytes(as_bytes("horovod handshake"));  // separates handshakes from other uses of the key
  text.put(prover);
  put_challenges(text);
  text.put_bytes(claim);
  return hmac_sha256(key_.bytes, text.take());
}

void Handshake::check_agreement() const {
  HVD_ASSERT(peer_.has_value());
  if (peer_->purpose != mine_.purpose) {
    fail(Code::internal,
         fmt::format("{} opened a connection for \"{}\" where one for \"{}\" was expected",
                     peer_name(peer_->rank), peer_->purpose, mine_.purpose),
         peer_->rank);
  }
  if (peer_->generation != mine_.generation) {
    fail(Code::internal,
         fmt::format("{} has generation {}, expected generation {}", peer_name(peer_->rank),
                     peer_->generation, mine_.generation),
         peer_->rank);
  }
  if (peer_->encryption == mine_.encryption) return;
  const bool theirs = peer_->encryption == Encryption::on;
  fail(
      Code::invalid_argument,
      fmt::format("{} encrypts its connections, but {} does not: set HOROVOD_TLS to the same value "
                  "on all ranks",
                  peer_name(theirs ? peer_->rank : mine_.rank),
                  peer_name(theirs ? mine_.rank : peer_->rank)),
      peer_->rank);
}

}  // namespace hvd
