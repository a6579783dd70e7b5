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
constexpr uint8_t kVersion = 1;
constexpr size_t kRandomBytes = 32;

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
  const Digest expected = mac_of(other(role_), hello);
  if (!are_equal_in_constant_time(expected, proof.subspan(kHelloBytes))) refuse();
  peer_ = hello_of(hello);
  step_ = Step::done;
  return role_ == Role::acceptor ? my_proof() : ByteVector{};
}

ByteVector Handshake::my_proof() const {
  ByteVector proof = bytes_of(mine_);
  const Digest mac = mac_of(role_, proof);
  proof.insert(proof.end(), mac.begin(), mac.end());
  return proof;
}

Digest Handshake::mac_of(Role prover, ConstBytes hello) const {
  const bool dialed = role_ == Role::dialer;
  Writer text;
  text.put_bytes(as_bytes("horovod handshake"));  // separates handshakes from other uses of the key
  text.put(prover);
  text.put_bytes(dialed ? my_challenge_ : their_challenge_);
  text.put_bytes(dialed ? their_challenge_ : my_challenge_);
  text.put_bytes(hello);
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
}

}  // namespace hvd
