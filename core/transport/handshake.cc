#include "core/transport/handshake.h"

#include <fmt/core.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>

#include "core/base/assert.h"
#include "core/base/error.h"
#include "core/transport/link.h"

namespace hvd {
namespace {

constexpr uint32_t kMagic = 0x4a445648;  // "HVDJ"
constexpr uint8_t kVersion = 1;
constexpr size_t kRandomBytes = 32;

/// OpenSSL reads no configuration file and leaves nothing to be done at exit: a process may hold
/// another OpenSSL with plans of its own.
void start_openssl() {
  static const int started =
      OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ATEXIT, nullptr);
  if (started != 1) fail(Code::internal, "OpenSSL could not be started");
}

[[noreturn]] void refuse() {
  fail(Code::unauthorized, "the other side of a new connection does not know this job's key");
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

std::array<std::byte, 32> hmac_sha256(const JobKey& key, ConstBytes input) {
  std::array<std::byte, 32> mac;
  unsigned int size = 0;
  const auto* done = HMAC(EVP_sha256(), key.bytes.data(), static_cast<int>(key.bytes.size()),
                          reinterpret_cast<const unsigned char*>(input.data()), input.size(),
                          reinterpret_cast<unsigned char*>(mac.data()), &size);
  if (done == nullptr || size != mac.size()) fail(Code::internal, "HMAC-SHA-256 failed");
  return mac;
}

Handshake::Role other(Handshake::Role role) {
  using enum Handshake::Role;
  return role == dialer ? acceptor : dialer;
}

}  // namespace

void fill_random(MutableBytes out) {
  for (size_t done = 0; done < out.size();) {
    const ssize_t count = ::getrandom(out.data() + done, out.size() - done, 0);
    if (count < 0 && errno != EINTR) fail_errno("getrandom");
    if (count > 0) done += static_cast<size_t>(count);
  }
}

JobKey make_job_key() {
  JobKey key;
  fill_random(key.bytes);
  return key;
}

JobKey derived_key(const JobKey& key, std::string_view purpose) {
  start_openssl();
  Writer text;
  text.put_bytes(as_bytes("horovod derived key "));  // not what a handshake begins with
  text.put_bytes(as_bytes(purpose));
  return {hmac_sha256(key, text.take())};
}

Handshake::Handshake(Role role, const JobKey& key, Hello mine)
    : role_(role), key_(key), mine_(std::move(mine)), my_challenge_(make_challenge(role)) {
  HVD_ASSERT(mine_.purpose.size() <= kMaxPurposeBytes);
  start_openssl();
}

Handshake::Challenge Handshake::make_challenge(Role role) {
  Writer out;
  out.put(kMagic);
  out.put(kVersion);
  out.put(role);
  out.put(uint16_t{0});
  const ByteVector fixed = out.take();
  HVD_ASSERT(fixed.size() + kRandomBytes == kChallengeBytes);
  Challenge challenge;
  std::copy(fixed.begin(), fixed.end(), challenge.begin());
  fill_random(MutableBytes(challenge).subspan(fixed.size()));
  return challenge;
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
      return kProofBytes;
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
  constexpr size_t fixed = kChallengeBytes - kRandomBytes;
  std::copy_n(incoming_.begin(), kChallengeBytes, their_challenge_.begin());
  Challenge expected = make_challenge(other(role_));
  if (!std::equal(expected.begin(), expected.begin() + fixed, their_challenge_.begin())) refuse();
  step_ = Step::proof;
  if (role_ == Role::dialer) return my_proof();
  return {my_challenge_.begin(), my_challenge_.end()};
}

ByteVector Handshake::take_proof() {
  const auto proof = ConstBytes(incoming_);
  const auto hello = proof.first(kHelloBytes);
  const Mac expected = mac_of(other(role_), hello);
  if (CRYPTO_memcmp(expected.data(), proof.data() + kHelloBytes, kMacBytes) != 0) refuse();
  peer_ = hello_of(hello);
  step_ = Step::done;
  return role_ == Role::acceptor ? my_proof() : ByteVector{};
}

ByteVector Handshake::my_proof() const {
  ByteVector proof = bytes_of(mine_);
  const Mac mac = mac_of(role_, proof);
  proof.insert(proof.end(), mac.begin(), mac.end());
  return proof;
}

Handshake::Mac Handshake::mac_of(Role prover, ConstBytes hello) const {
  const bool dialed = role_ == Role::dialer;
  Writer text;
  text.put_bytes(
      as_bytes("horovod handshake"));  // a key that also served elsewhere would not answer there
  text.put(prover);
  text.put_bytes(dialed ? my_challenge_ : their_challenge_);
  text.put_bytes(dialed ? their_challenge_ : my_challenge_);
  text.put_bytes(hello);
  return hmac_sha256(key_, text.take());
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
         fmt::format("{} is of generation {}, this is generation {}", peer_name(peer_->rank),
                     peer_->generation, mine_.generation),
         peer_->rank);
  }
}

}  // namespace hvd
