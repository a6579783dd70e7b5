#include "core/transport/record_cipher.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/transport/hex_testing.h"
#include "core/transport/session_keys_testing.h"

namespace hvd {
namespace {

SecretBytes key() { return session_keys(Cipher::aes256_gcm).first.send; }

ByteVector sealed(RecordCipher& cipher, std::string_view text, std::string_view header = "h") {
  ByteVector out(text.size() + RecordCipher::kTagBytes);
  cipher.seal(as_bytes(text), as_bytes(header), out);
  return out;
}

std::string opened(RecordCipher& cipher, const ByteVector& record, std::string_view header = "h") {
  ByteVector out(record.size() - RecordCipher::kTagBytes);
  if (!cipher.open(record, as_bytes(header), out)) return "refused";
  return std::string(as_text(out));
}

class RecordCipherTest : public testing::TestWithParam<Cipher> {};

TEST_P(RecordCipherTest, RecordsOpenInTheOrderInWhichTheyWereSealed) {
  RecordCipher sender(GetParam(), key()), receiver(GetParam(), key());
  for (const std::string text : {"first", "", "third", "third"})
    EXPECT_EQ(opened(receiver, sealed(sender, text)), text);
}

TEST_P(RecordCipherTest, EqualTextsAreDifferentRecords) {
  RecordCipher sender(GetParam(), key());
  EXPECT_NE(sealed(sender, "twice"), sealed(sender, "twice"));
}

TEST_P(RecordCipherTest, AChangedBitIsRefused) {
  RecordCipher probe(GetParam(), key());
  const ByteVector record = sealed(probe, "text");
  for (size_t bit = 0; bit < record.size() * 8; ++bit) {
    ByteVector changed = record;
    changed[bit / 8] ^= std::byte{1} << (bit % 8);
    RecordCipher receiver(GetParam(), key());
    EXPECT_EQ(opened(receiver, changed), "refused") << "bit " << bit;
  }
  RecordCipher receiver(GetParam(), key());
  EXPECT_EQ(opened(receiver, record, "i"), "refused") << "another header";
}

TEST_P(RecordCipherTest, ARepeatedADroppedAndAForeignRecordAreRefused) {
  RecordCipher sender(GetParam(), key()), other(GetParam(), session_keys(GetParam()).first.receive);
  const ByteVector first = sealed(sender, "first"), second = sealed(sender, "second");
  RecordCipher repeated(GetParam(), key());
  EXPECT_EQ(opened(repeated, first), "first");
  EXPECT_EQ(opened(repeated, first), "refused");
  RecordCipher dropped(GetParam(), key());
  EXPECT_EQ(opened(dropped, second), "refused");
  RecordCipher foreign(GetParam(), key());
  EXPECT_EQ(opened(foreign, sealed(other, "first")), "refused");
}

TEST_P(RecordCipherTest, AfterOneThatWasRefusedNothingOpens) {
  RecordCipher sender(GetParam(), key()), receiver(GetParam(), key());
  sealed(sender, "dropped");
  EXPECT_EQ(opened(receiver, sealed(sender, "second")), "refused");
  RecordCipher again(GetParam(), key());
  sealed(again, "first");
  EXPECT_EQ(opened(receiver, sealed(again, "second")), "refused");
}

TEST_P(RecordCipherTest, BothEndsReplaceTheirKeyAfterSoManyRecords) {
  RecordCipher sender(GetParam(), key(), 2), receiver(GetParam(), key(), 2);
  RecordCipher never(GetParam(), key());
  for (int i = 0; i < 7; ++i) {
    const ByteVector record = sealed(sender, "text");
    EXPECT_EQ(record == sealed(never, "text"), i < 2) << i;
    EXPECT_EQ(opened(receiver, record), "text") << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Transport, RecordCipherTest, testing::ValuesIn(all_ciphers()));

// Test vectors: GCM specification (McGrew and Viega), test case 14, whose key, nonce and block are
// zeros; the empty header leaves the tag as it is there.
TEST(RecordCipher, IsAesGcmOfTheStandard) {
  if (!has_fast_aes()) GTEST_SKIP() << "this CPU has no instructions for AES";
  RecordCipher cipher(Cipher::aes256_gcm, SecretBytes{});
  const std::string zeros(16, '\0');
  EXPECT_EQ(as_hex(sealed(cipher, zeros, "")),
            "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919");
}

TEST(Message, OpensWithItsKeyAndNumberOnly) {
  const auto opens = [](const SecretBytes& with, uint64_t number, ByteVector sealed, size_t flip) {
    sealed[flip] ^= flip == 0 ? std::byte{0} : std::byte{1};
    ByteVector out(sealed.size() - RecordCipher::kTagBytes);
    try {
      open_message(with, number, sealed, out);
      return as_text(out) == "text";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::invalid_argument);
      return false;
    }
  };
  ByteVector message(4 + RecordCipher::kTagBytes);
  seal_message(key(), 7, as_bytes("text"), message);
  EXPECT_TRUE(opens(key(), 7, message, 0));
  EXPECT_FALSE(opens(key(), 8, message, 0));
  EXPECT_FALSE(opens(SecretBytes{}, 7, message, 0));
  for (size_t place = 1; place < message.size(); ++place)
    EXPECT_FALSE(opens(key(), 7, message, place));
}

TEST(KeyExchange, BothEndsShareASecretThatIsNewEachTime) {
  const KeyExchange one, other, third;
  EXPECT_EQ(one.shared_with(other.public_key()), other.shared_with(one.public_key()));
  EXPECT_NE(one.shared_with(other.public_key()), one.shared_with(third.public_key()));
}

TEST(KeyExchange, APublicKeyThatMakesEverySecretEqualIsRefused) {
  const KeyExchange honest;
  try {
    honest.shared_with(PublicKey{});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::unauthorized);
  }
}

}  // namespace
}  // namespace hvd
