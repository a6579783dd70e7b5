#include "core/transport/digest.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "core/transport/hex_testing.h"

namespace hvd {
namespace {

std::string mac(std::string_view key, std::string_view input) {
  return as_hex(hmac_sha256(as_bytes(key), as_bytes(input)));
}

// The examples of FIPS 180-2, appendix B, and the digest of no bytes.
TEST(Sha256, GivesThePublishedDigests) {
  const auto digest = [](std::string_view input) { return as_hex(sha256(as_bytes(input))); };
  EXPECT_EQ(digest(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(digest("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(digest("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(digest(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// RFC 4231, section 4, test cases 1 to 4.
TEST(HmacSha256, GivesThePublishedCodesForShortKeys) {
  EXPECT_EQ(mac(std::string(20, '\x0b'), "Hi There"),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(mac("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(mac(std::string(20, '\xaa'), std::string(50, '\xdd')),
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  std::string counting;
  for (char byte = 1; byte <= 25; ++byte) counting += byte;
  EXPECT_EQ(mac(counting, std::string(50, '\xcd')),
            "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b");
}

// RFC 4231, section 4, test case 5, whose code has 128 bits.
TEST(HmacSha256, BeginsWithThePublishedTruncatedCode) {
  EXPECT_EQ(mac(std::string(20, '\x0c'), "Test With Truncation").substr(0, 32),
            "a3b6167473100ee06e0c796c2955552b");
}

// RFC 4231, section 4, test cases 6 and 7.
TEST(HmacSha256, GivesThePublishedCodesForKeysLongerThanABlock) {
  const std::string key(131, '\xaa');
  EXPECT_EQ(mac(key, "Test Using Larger Than Block-Size Key - Hash Key First"),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  EXPECT_EQ(mac(key,
                "This is a test using a larger than block-size key and a larger than block-size "
                "data. The key needs to be hashed before being used by the HMAC algorithm."),
            "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

TEST(Comparison, FindsEachDifferentBit) {
  const Digest digest = sha256(as_bytes("abc"));
  EXPECT_TRUE(are_equal_in_constant_time(digest, Digest(digest)));
  EXPECT_TRUE(are_equal_in_constant_time({}, {}));
  for (size_t bit = 0; bit < digest.size() * 8; ++bit) {
    Digest other = digest;
    other[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_FALSE(are_equal_in_constant_time(digest, other)) << "bit " << bit;
  }
}

}  // namespace
}  // namespace hvd
