#include "core/transport/handshake.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <array>
#include <string>

#include "core/base/error.h"
#include "core/base/syscall_testing.h"
#include "core/transport/hex_testing.h"

namespace hvd {
namespace {

using Role = Handshake::Role;

JobKey key_of(int seed) {
  JobKey key;
  for (size_t i = 0; i < key.bytes.size(); ++i) key.bytes[i] = static_cast<std::byte>(i * 7 + seed);
  return key;
}

Handshake dialer(const JobKey& key = key_of(1), Hello hello = {"data", 3, 5}) {
  return Handshake(Role::dialer, key, std::move(hello));
}
Handshake acceptor(const JobKey& key = key_of(1), Hello hello = {"data", 0, 5}) {
  return Handshake(Role::acceptor, key, std::move(hello));
}

/// All messages of both sides in order: challenge, challenge, proof, proof.
struct Talk {
  ByteVector dialer_challenge, acceptor_challenge, dialer_proof, acceptor_proof;
};

Talk run(Handshake& dialing, Handshake& accepting) {
  Talk talk;
  EXPECT_TRUE(accepting.start().empty());
  talk.dialer_challenge = dialing.start();
  talk.acceptor_challenge = accepting.feed(talk.dialer_challenge);
  talk.dialer_proof = dialing.feed(talk.acceptor_challenge);
  talk.acceptor_proof = accepting.feed(talk.dialer_proof);
  EXPECT_TRUE(dialing.feed(talk.acceptor_proof).empty());
  return talk;
}

/// Returns ok, or the error with which `side` rejects the bytes; a rejection reveals no data.
Code code_of_feeding(Handshake& side, ConstBytes bytes, ByteVector* answer = nullptr) {
  try {
    const ByteVector out = side.feed(bytes);
    if (answer != nullptr) *answer = out;
    return Code::ok;
  } catch (const Error& error) {
    EXPECT_FALSE(side.peer().has_value());
    return error.code();
  }
}

TEST(DerivedKey, IsEqualForEqualKeysAndPurposesOnly) {
  const JobKey derived = derived_key(key_of(1), "objects");
  EXPECT_EQ(derived.bytes, derived_key(key_of(1), "objects").bytes);
  EXPECT_NE(derived.bytes, key_of(1).bytes);
  EXPECT_NE(derived.bytes, derived_key(key_of(2), "objects").bytes);
  EXPECT_NE(derived.bytes, derived_key(key_of(1), "object").bytes);
  EXPECT_NE(derived.bytes, derived_key(key_of(1), "").bytes);
}

// Computed with the hmac module of Python.
TEST(DerivedKey, IsTheHmacOfItsPurpose) {
  EXPECT_EQ(as_hex(derived_key(key_of(1), "objects").bytes),
            "fabed5de6bd87bef2257087972ed91349e9a6827ba70acaa789a498ec284d61b");
}

TEST(Handshake, BothSidesLearnWhoTheOtherIs) {
  auto dialing = dialer();
  auto accepting = acceptor();
  run(dialing, accepting);
  EXPECT_EQ(dialing.wanted(), 0u);
  EXPECT_EQ(accepting.wanted(), 0u);
  ASSERT_TRUE(dialing.peer() && accepting.peer());
  EXPECT_EQ(dialing.peer()->rank, 0);
  EXPECT_EQ(accepting.peer()->rank, 3);
  EXPECT_EQ(accepting.peer()->purpose, "data");
  EXPECT_EQ(accepting.peer()->generation, 5u);
  dialing.check_agreement();
  accepting.check_agreement();
}

TEST(Handshake, PassesByteByByte) {
  auto dialing = dialer();
  auto accepting = acceptor();
  ByteVector to_acceptor = dialing.start();
  ByteVector to_dialer;
  const auto deliver = [](ByteVector& bytes, Handshake& to, ByteVector& answer) {
    for (const std::byte byte : std::exchange(bytes, {})) {
      const ByteVector out = to.feed({&byte, 1});
      answer.insert(answer.end(), out.begin(), out.end());
    }
  };
  while (!to_acceptor.empty() || !to_dialer.empty()) {
    deliver(to_acceptor, accepting, to_dialer);
    deliver(to_dialer, dialing, to_acceptor);
  }
  EXPECT_TRUE(dialing.peer() && accepting.peer());
}

TEST(Handshake, AStrangerWhoDialsGetsARandomNumberAndNoProof) {
  auto dialing = dialer(key_of(2));
  auto accepting = acceptor(key_of(1));
  const ByteVector proof = dialing.feed(accepting.feed(dialing.start()));
  EXPECT_EQ(code_of_feeding(accepting, proof), Code::unauthorized);
}

TEST(Handshake, AStrangerWhoAnswersIsRefused) {
  auto dialing = dialer(key_of(1));
  auto accepting = acceptor(key_of(1));
  auto stranger = acceptor(key_of(2));
  const ByteVector first = dialing.start();
  accepting.feed(first);
  const ByteVector proof = dialing.feed(stranger.feed(first));
  EXPECT_EQ(code_of_feeding(stranger, proof),
            Code::unauthorized);  // it cannot be verified without the key
  // A proof made with another key for the same challenges is rejected.
  auto liar_dialer = dialer(key_of(2));
  auto liar_acceptor = acceptor(key_of(2));
  const Talk lies = run(liar_dialer, liar_acceptor);
  EXPECT_EQ(code_of_feeding(dialing, lies.acceptor_proof), Code::unauthorized);
}

TEST(Handshake, AnyWrongBitIsRefused) {
  const auto flip = [](ByteVector bytes, size_t bit) {
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    return bytes;
  };
  auto probe_dialer = dialer();
  auto probe_acceptor = acceptor();
  const Talk sizes = run(probe_dialer, probe_acceptor);

  // A changed challenge is malformed or invalidates the proofs.
  for (size_t bit = 0; bit < sizes.dialer_challenge.size() * 8; ++bit) {
    auto dialing = dialer();
    auto accepting = acceptor();
    ByteVector challenge;
    if (code_of_feeding(accepting, flip(dialing.start(), bit), &challenge) != Code::ok) continue;
    const ByteVector proof = dialing.feed(challenge);
    EXPECT_EQ(code_of_feeding(accepting, proof), Code::unauthorized) << "bit " << bit;
  }
  for (size_t bit = 0; bit < sizes.acceptor_challenge.size() * 8; ++bit) {
    auto dialing = dialer();
    auto accepting = acceptor();
    ByteVector proof;
    const ByteVector challenge = flip(accepting.feed(dialing.start()), bit);
    if (code_of_feeding(dialing, challenge, &proof) != Code::ok) continue;
    EXPECT_EQ(code_of_feeding(accepting, proof), Code::unauthorized) << "bit " << bit;
  }
  for (size_t bit = 0; bit < sizes.dialer_proof.size() * 8; ++bit) {
    auto dialing = dialer();
    auto accepting = acceptor();
    const ByteVector proof = flip(dialing.feed(accepting.feed(dialing.start())), bit);
    EXPECT_EQ(code_of_feeding(accepting, proof), Code::unauthorized) << "bit " << bit;
  }
  for (size_t bit = 0; bit < sizes.acceptor_proof.size() * 8; ++bit) {
    auto dialing = dialer();
    auto accepting = acceptor();
    const ByteVector proof = dialing.feed(accepting.feed(dialing.start()));
    EXPECT_EQ(code_of_feeding(dialing, flip(accepting.feed(proof), bit)), Code::unauthorized)
        << "bit " << bit;
  }
}

TEST(Handshake, ACutMessageIsAnsweredByNothing) {
  auto whole = dialer();
  const ByteVector challenge = whole.start();
  for (size_t length = 0; length < challenge.size(); ++length) {
    auto accepting = acceptor();
    EXPECT_TRUE(accepting.feed(ConstBytes(challenge).first(length)).empty());
    EXPECT_EQ(accepting.wanted(), challenge.size() - length);
    EXPECT_FALSE(accepting.peer().has_value());
  }
}

TEST(Handshake, AChallengeSentBackIsRefused) {
  auto dialing = dialer();
  EXPECT_EQ(code_of_feeding(dialing, dialing.start()), Code::unauthorized);
}

TEST(Handshake, AProofSentBackIsRefused) {
  auto dialing = dialer();
  auto accepting = acceptor();
  const ByteVector proof = dialing.feed(accepting.feed(dialing.start()));
  EXPECT_EQ(code_of_feeding(dialing, proof), Code::unauthorized);
}

// A man in the middle between two ranks that both dial and accept: it passes the challenge of one
// rank to the other.
TEST(Handshake, AProofForAnotherConnectionIsRefused) {
  auto victim = acceptor();
  auto helper = dialer();  // dials the man in the middle
  auto elsewhere = acceptor();
  const ByteVector first = helper.start();
  victim.feed(first);
  const ByteVector proof = helper.feed(elsewhere.feed(first));
  EXPECT_EQ(code_of_feeding(victim, proof), Code::unauthorized);
}

TEST(Handshake, AReplayIsRefused) {
  auto dialing = dialer();
  auto accepting = acceptor();
  const Talk recorded = run(dialing, accepting);
  auto fresh = acceptor();
  fresh.feed(recorded.dialer_challenge);
  EXPECT_EQ(code_of_feeding(fresh, recorded.dialer_proof), Code::unauthorized);
  auto another = dialer();
  another.start();
  another.feed(recorded.acceptor_challenge);
  EXPECT_EQ(code_of_feeding(another, recorded.acceptor_proof), Code::unauthorized);
}

std::string disagreement(Hello dialing_hello, Hello accepting_hello, bool asks_dialer) {
  auto dialing = dialer(key_of(1), std::move(dialing_hello));
  auto accepting = acceptor(key_of(1), std::move(accepting_hello));
  run(dialing, accepting);
  try {
    (asks_dialer ? dialing : accepting).check_agreement();
    return "agreed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::internal);
    return error.what();
  }
}

TEST(Handshake, AnotherGenerationIsRefusedInPlainWordsOnBothSides) {
  EXPECT_EQ(disagreement({"data", 3, 5}, {"data", 0, 6}, false),
            "rank 3 has generation 5, expected generation 6");
  EXPECT_EQ(disagreement({"data", 3, 5}, {"data", 0, 6}, true),
            "rank 0 has generation 6, expected generation 5");
}

TEST(Handshake, AnotherPurposeIsRefusedInPlainWords) {
  EXPECT_EQ(disagreement({"data", 3, 5}, {"control", 0, 5}, false),
            "rank 3 opened a connection for \"data\" where one for \"control\" was expected");
}

Handshake encrypting(Role role, Encryption encryption, const JobKey& key = key_of(1)) {
  return Handshake(role, key, {"data", role == Role::dialer ? 3 : 0, 5, encryption});
}

TEST(Handshake, EndsThatAskForEncryptionShareKeysThatAreNewEachTime) {
  SessionKeys before;
  for (int i = 0; i < 3; ++i) {
    auto dialing = encrypting(Role::dialer, Encryption::on);
    auto accepting = encrypting(Role::acceptor, i == 0 ? Encryption::as_dialed : Encryption::on);
    run(dialing, accepting);
    dialing.check_agreement();
    accepting.check_agreement();
    ASSERT_TRUE(dialing.keys() && accepting.keys());
    EXPECT_EQ(dialing.keys()->send, accepting.keys()->receive);
    EXPECT_EQ(dialing.keys()->receive, accepting.keys()->send);
    EXPECT_EQ(dialing.keys()->cipher, accepting.keys()->cipher);
    EXPECT_NE(dialing.keys()->send, dialing.keys()->receive);
    EXPECT_NE(dialing.keys()->send, before.send);
    before = *dialing.keys();
  }
}

TEST(Handshake, WithoutEncryptionThereAreNoKeys) {
  for (const Encryption encryption : {Encryption::off, Encryption::as_dialed}) {
    auto dialing = encrypting(Role::dialer, Encryption::off);
    auto accepting = encrypting(Role::acceptor, encryption);
    run(dialing, accepting);
    accepting.check_agreement();
    EXPECT_FALSE(dialing.keys() || accepting.keys());
  }
}

TEST(Handshake, EncryptionOfOneEndIsRefusedInPlainWordsOnBothSides) {
  for (const bool dialer_encrypts : {true, false}) {
    const auto of = [](bool on) { return on ? Encryption::on : Encryption::off; };
    auto dialing = encrypting(Role::dialer, of(dialer_encrypts));
    auto accepting = encrypting(Role::acceptor, of(!dialer_encrypts));
    run(dialing, accepting);
    const std::string expected = fmt::format(
        "rank {} encrypts its connections, but rank {} does not: set HOROVOD_TLS to the same value "
        "on all ranks",
        dialer_encrypts ? 3 : 0, dialer_encrypts ? 0 : 3);
    for (const Handshake* side : {&dialing, &accepting}) {
      try {
        side->check_agreement();
        ADD_FAILURE() << "agreed";
      } catch (const Error& error) {
        EXPECT_EQ(error.what(), expected);
      }
    }
  }
}

TEST(Handshake, AnyWrongBitOfAnEncryptedOneIsRefused) {
  auto probe_dialer = encrypting(Role::dialer, Encryption::on);
  auto probe_acceptor = encrypting(Role::acceptor, Encryption::on);
  const Talk sizes = run(probe_dialer, probe_acceptor);
  const auto flip = [](ByteVector bytes, size_t bit) {
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    return bytes;
  };
  for (size_t bit = 0; bit < sizes.dialer_proof.size() * 8; ++bit) {
    auto dialing = encrypting(Role::dialer, Encryption::on);
    auto accepting = encrypting(Role::acceptor, Encryption::on);
    const ByteVector proof = dialing.feed(accepting.feed(dialing.start()));
    EXPECT_EQ(code_of_feeding(accepting, flip(proof, bit)), Code::unauthorized) << "bit " << bit;
  }
}

/// An attacker who clears or sets a flag in both directions does not get two ends that agree.
TEST(Handshake, NobodyElseTurnsEncryptionOff) {
  constexpr size_t kFlagsPlace = 6;  // as docs/wire.md has it
  auto dialing = encrypting(Role::dialer, Encryption::on);
  auto accepting = encrypting(Role::acceptor, Encryption::as_dialed);
  ByteVector message = dialing.start();
  message[kFlagsPlace] = std::byte{0};
  message = accepting.feed(message);
  message = dialing.feed(message);
  EXPECT_EQ(code_of_feeding(accepting, message), Code::unauthorized);
}

TEST(JobKey, IsNeverTheSameTwice) { EXPECT_NE(make_job_key().bytes, make_job_key().bytes); }

TEST(FillRandom, NamesTheCallAndItsKernel) {
  const auto named = hvd::test::without(SYS_getrandom, [] {
    std::array<std::byte, 1> out{};
    try {
      fill_random(out);
    } catch (const Error& error) {
      return std::string(error.what()).find("getrandom (Linux 3.17)") != std::string::npos;
    }
    return false;
  });
  if (!named) GTEST_SKIP() << "seccomp filters are not allowed here";
  EXPECT_TRUE(*named);
}

}  // namespace
}  // namespace hvd
