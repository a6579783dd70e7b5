#include "core/transport/encrypted_link.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <string>

#include "core/base/error.h"
#include "core/transport/channel.h"
#include "core/transport/link_contract.h"
#include "core/transport/mem_link.h"
#include "core/transport/session_keys_testing.h"
#include "core/transport/tcp_link.h"

namespace hvd {
namespace {

constexpr const char* kSecret = "the weights of the first layer";
constexpr size_t kFrontBytes = 4;  // as docs/wire.md has it
constexpr size_t kRestBytes = RecordCipher::kTagBytes;

LinkPair over_mem(Cipher cipher, const MemLinkOptions& options) {
  auto [first, second] = MemLink::make_pair(options);
  const auto [one, other] = session_keys(cipher);
  return {std::make_unique<EncryptedLink>(std::move(first), one, 1),
          std::make_unique<EncryptedLink>(std::move(second), other, 0), nullptr};
}

LinkPair over_sockets(Cipher cipher) {
  int fds[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  const auto [one, other] = session_keys(cipher);
  return {make_tcp_link(FileDescriptor(fds[0]), 1, one),
          make_tcp_link(FileDescriptor(fds[1]), 0, other), nullptr};
}

std::vector<LinkKind> kinds() {
  std::vector<LinkKind> all;
  for (const Cipher cipher : all_ciphers()) {
    const std::string name = cipher == Cipher::aes256_gcm ? "aes" : "chacha";
    all.push_back({name + "_socket", [=] { return over_sockets(cipher); }});
    all.push_back({name + "_mem", [=] { return over_mem(cipher, {}); }});
    all.push_back(
        {name + "_split", [=] { return over_mem(cipher, {.capacity = 8192, .split_seed = 7}); }});
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Encrypted, LinkContract, testing::ValuesIn(kinds()), name_of_kind);

/// An encrypted end, the bytes that it has put on the wire, and a victim that gets them altered.
class Wire {
 public:
  void send(std::string_view text) {
    EXPECT_EQ(sender_.send_some(as_bytes(text)), text.size());
    ByteVector room(1 * MiB);
    room.resize(tap_->receive_some(room));
    records_.push_back(std::move(room));
  }
  std::vector<ByteVector>& records() { return records_; }

  /// What arrives of the records, and then the error.
  std::string received() {
    std::string all;
    for (const ByteVector& record : records_)
      EXPECT_EQ(injector_->send_some(record), record.size());
    injector_.reset();
    try {
      for (;;) {
        std::array<std::byte, 1000> room;
        const size_t count = victim_.receive_some(room);
        all += as_text(ConstBytes(room).first(count));
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::peer_lost);
      EXPECT_EQ(error.rank(), 0);
      return all + "|" + error.what();
    }
  }

 private:
  using Pair = std::pair<std::unique_ptr<MemLink>, std::unique_ptr<MemLink>>;
  Pair sent_ = MemLink::make_pair({}), delivered_ = MemLink::make_pair({});
  std::pair<SessionKeys, SessionKeys> keys_ = session_keys(Cipher::chacha20_poly1305);
  EncryptedLink sender_{std::move(sent_.first), keys_.first, 1};
  std::unique_ptr<MemLink> tap_ = std::move(sent_.second), injector_ = std::move(delivered_.first);
  EncryptedLink victim_{std::move(delivered_.second), keys_.second, 0};
  std::vector<ByteVector> records_;
};

constexpr const char* kRefused =
    "an encrypted record from rank 0 was changed, repeated, dropped or cut on its way; the "
    "connection is closed";

TEST(EncryptedLink, PutsNothingReadableOnTheWire) {
  Wire wire;
  wire.send(kSecret);
  const ByteVector& record = wire.records().front();
  EXPECT_EQ(record.size(), kFrontBytes + std::string(kSecret).size() + kRestBytes);
  EXPECT_EQ(as_text(record).find("weights"), std::string::npos);
  EXPECT_EQ(wire.received().substr(0, std::string(kSecret).size()), kSecret);
}

TEST(EncryptedLink, AChangedByteEndsTheConnection) {
  for (size_t place = 0; place < kFrontBytes + 6 + kRestBytes; ++place) {
    Wire wire;
    wire.send("before");
    wire.send("secret");
    wire.records().back()[place] ^= std::byte{0x80};
    const std::string received = wire.received();
    // A larger length makes the end of the connection the middle of a record.
    const bool is_cut = received == "before|rank 0 closed the connection";
    EXPECT_TRUE(received == std::string("before|") + kRefused || (is_cut && place < kFrontBytes))
        << place << ": " << received;
  }
}

TEST(EncryptedLink, ARepeatedRecordEndsTheConnection) {
  Wire wire;
  wire.send("once");
  wire.records().push_back(wire.records().front());
  EXPECT_EQ(wire.received(), std::string("once|") + kRefused);
}

TEST(EncryptedLink, ADroppedRecordEndsTheConnection) {
  Wire wire;
  wire.send("first");
  wire.send("second");
  wire.records().erase(wire.records().begin());
  EXPECT_EQ(wire.received(), std::string("|") + kRefused);
}

TEST(EncryptedLink, ACutRecordIsNotDelivered) {
  Wire wire;
  wire.send("first");
  wire.send("second");
  wire.records().back().pop_back();
  EXPECT_EQ(wire.received(), "first|rank 0 closed the connection");
}

TEST(EncryptedLink, ARecordWithoutItsEndIsNotTakenForAShorterOne) {
  Wire wire;
  wire.send("secret");
  ByteVector& record = wire.records().back();
  record[0] = std::byte{5};
  record.erase(record.begin() + kFrontBytes);
  EXPECT_EQ(wire.received(), std::string("|") + kRefused);
}

TEST(EncryptedLink, AnImpossibleLengthEndsTheConnectionBeforeMoreIsRead) {
  Wire wire;
  wire.send("secret");
  wire.records().back().resize(kFrontBytes);
  wire.records().back()[3] = std::byte{1};
  EXPECT_EQ(wire.received(), std::string("|") + kRefused);
}

/// Receives only when the socket is readable, as the progress thread does.
void expect_arrive(Channel& from, Channel& to, size_t frames, size_t bytes) {
  for (size_t i = 0; i < frames; ++i) from.send(FrameKind::data, ByteVector(bytes));
  for (size_t received = 0; received < frames;) {
    from.pump();
    pollfd entry{to.fd(), POLLIN, 0};
    ASSERT_TRUE(::poll(&entry, 1, 0) > 0 || from.unsent_bytes() > 0)
        << "nothing wakes the receiver, which has " << received << " of " << frames;
    to.pump();
    while (to.receive()) ++received;
  }
}

TEST(EncryptedLink, WhatItHoldsIsReadThoughTheSocketIsEmpty) {
  for (const size_t bytes : {10u, 1000u, 20000u, 100000u, 3000000u}) {
    LinkPair pair = over_sockets(Cipher::chacha20_poly1305);
    Channel one(std::move(pair.first), 1, 5), other(std::move(pair.second), 0, 5);
    expect_arrive(one, other, 20, bytes);
    expect_arrive(other, one, 20, bytes);
  }
}

TEST(EncryptedLink, LentFramesLandInPostedBuffers) {
  LinkPair pair = over_sockets(Cipher::chacha20_poly1305);
  Channel one(std::move(pair.first), 1, 5), other(std::move(pair.second), 0, 5);
  const ByteVector head(kHeadBytes, std::byte{1});
  ByteVector tensor(1 * MiB), target(tensor.size());
  for (size_t i = 0; i < tensor.size(); ++i) tensor[i] = static_cast<std::byte>(i * 31);
  const std::array<ConstBytes, 3> pieces{ConstBytes(tensor).first(10),
                                         ConstBytes(tensor).subspan(10, 5000),
                                         ConstBytes(tensor).subspan(5010)};
  other.land(head, target);
  one.lend(FrameKind::data, head, pieces);
  while (!other.front()) one.pump(), other.pump();
  EXPECT_EQ(other.receive()->landed.data(), target.data());
  EXPECT_EQ(target, tensor);
  EXPECT_EQ(one.sent_bytes(), one.queued_bytes());
}

}  // namespace
}  // namespace hvd
