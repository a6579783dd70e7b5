#include "core/transport/channel.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <random>

#include "core/base/error.h"
#include "core/base/heap_testing.h"
#include "core/transport/mem_link.h"
#include "core/transport/tcp_link.h"

namespace hvd {
namespace {

ByteVector payload_of(size_t bytes, int seed) {
  ByteVector out(bytes);
  for (size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>(i * 31 + seed);
  return out;
}

struct Pair {
  Channel first;
  Channel second;
};

Pair mem_channels(const MemLinkOptions& options, uint32_t first_generation = 5,
                  uint32_t second_generation = 5) {
  auto [a, b] = MemLink::make_pair(options);
  return {Channel(std::move(a), options.second_rank, first_generation),
          Channel(std::move(b), options.first_rank, second_generation)};
}

/// A channel and the raw link at its other end.
struct Bare {
  Bare() : Bare(MemLink::make_pair({.first_rank = 3})) {}
  explicit Bare(std::pair<std::unique_ptr<MemLink>, std::unique_ptr<MemLink>> pair)
      : link(std::move(pair.first)), channel(std::move(pair.second), 3, 5) {}

  Error error_of(const ByteVector& sent) {
    EXPECT_EQ(link->send_some(sent), sent.size());
    try {
      while (channel.pump()) {
      }
    } catch (const Error& error) {
      return error;
    }
    return Error(Code::ok, "no error");
  }
  std::unique_ptr<MemLink> link;
  Channel channel;
};

/// The bytes of a frame of generation 5 on the wire.
ByteVector bytes_of_frame(const ByteVector& payload) {
  auto [a, b] = MemLink::make_pair({});
  Channel channel(std::move(a), 0, 5);
  channel.send(FrameKind::control, payload);
  ByteVector out(kFrameHeaderBytes + payload.size());
  EXPECT_EQ(b->receive_some(out), out.size());
  return out;
}

void expect_frames_pass(Pair& pair) {
  const std::vector<size_t> sizes{0,     1,     15,    16, 17,      4096,        4097,
                                  16384, 16385, 70000, 3,  1 << 20, 5 * MiB + 3, 0};
  for (size_t i = 0; i < sizes.size(); ++i) {
    pair.first.send(i % 2 ? FrameKind::data : FrameKind::control,
                    payload_of(sizes[i], static_cast<int>(i)));
  }
  pair.first.send_goodbye();
  for (size_t i = 0; i < sizes.size();) {
    pair.first.pump();
    pair.second.pump();
    while (auto frame = pair.second.receive()) {
      EXPECT_EQ(frame->kind, i % 2 ? FrameKind::data : FrameKind::control);
      EXPECT_EQ(frame->payload, payload_of(sizes[i], static_cast<int>(i)));
      ++i;
    }
  }
  while (!pair.second.said_goodbye()) pair.first.pump(), pair.second.pump();
  EXPECT_EQ(pair.first.unsent_bytes(), 0u);
  EXPECT_EQ(pair.second.receive(), std::nullopt);
}

TEST(Channel, FramesOfAnyLengthArriveInOrder) {
  auto pair = mem_channels({});
  expect_frames_pass(pair);
}

TEST(Channel, FramesArriveHoweverTheWireCutsThem) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    auto pair = mem_channels({.capacity = 1 + seed * 97 % 5000, .split_seed = seed});
    expect_frames_pass(pair);
  }
}

TEST(Channel, FramesPassASocket) {
  int fds[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  Pair pair{Channel(std::make_unique<TcpLink>(FileDescriptor(fds[0]), 1), 1, 5),
            Channel(std::make_unique<TcpLink>(FileDescriptor(fds[1]), 0), 0, 5)};
  EXPECT_EQ(pair.first.fd(), fds[0]);
  expect_frames_pass(pair);
}

TEST(Channel, FrontShowsTheFrameThatReceiveWillTake) {
  auto pair = mem_channels({});
  EXPECT_EQ(pair.second.front(), nullptr);
  pair.first.send(FrameKind::data, payload_of(10, 1));
  EXPECT_TRUE(pair.second.pump());
  ASSERT_NE(pair.second.front(), nullptr);
  EXPECT_EQ(pair.second.front()->payload, payload_of(10, 1));
  EXPECT_EQ(pair.second.receive()->payload, payload_of(10, 1));
  EXPECT_FALSE(pair.second.pump());
}

TEST(Channel, UnsentBytesCountWhatTheWireHasNotTaken) {
  auto pair = mem_channels({.capacity = 100});
  pair.first.send(FrameKind::data, payload_of(10000, 1));
  EXPECT_EQ(pair.first.unsent_bytes(), kFrameHeaderBytes + 10000 - 100);
}

TEST(Channel, AnEndAfterAGoodbyeIsNoLoss) {
  auto pair = mem_channels({});
  pair.first.send(FrameKind::control, payload_of(5, 1));
  pair.first.send_goodbye();
  { const Channel gone = std::move(pair.first); }
  while (pair.second.pump()) {
  }
  EXPECT_TRUE(pair.second.said_goodbye());
  EXPECT_EQ(pair.second.receive()->payload, payload_of(5, 1));
}

TEST(Channel, AGoodbyeThatNobodyTakesAnyMoreIsNotWaitedFor) {
  auto pair = mem_channels({.first_rank = 3});
  pair.first.send_goodbye();
  { const Channel gone = std::move(pair.first); }
  pair.second.send(FrameKind::control, payload_of(5, 1));
  EXPECT_TRUE(pair.second.pump());
  EXPECT_FALSE(pair.second.pump());  // no loss yet
  pair.second.send_goodbye();
  try {
    pair.second.pump();
    FAIL() << "nobody is told that it cannot be sent";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::peer_lost);
    EXPECT_EQ(error.rank(), 3);
  }
}

TEST(Channel, AGoodbyeWaitsForAPeerThatHasSaidItsOwn) {
  auto pair = mem_channels({.capacity = 40});
  pair.first.send_goodbye();
  pair.second.send(FrameKind::control, payload_of(100, 1));
  pair.second.send_goodbye();
  while (pair.second.pump()) {
  }
  EXPECT_TRUE(pair.second.said_goodbye());
  EXPECT_GT(pair.second.unsent_bytes(), 0u);
  while (pair.second.unsent_bytes() > 0) {
    pair.first.pump();
    pair.second.pump();
  }
}

TEST(Channel, AGoodbyeSaysOnceWhomItsSenderHasLost) {
  auto pair = mem_channels({});
  pair.first.give_up(0);
  EXPECT_EQ(pair.second.take_reason(), kNoRank);
  while (pair.second.pump()) {
  }
  EXPECT_TRUE(pair.second.said_goodbye());
  EXPECT_TRUE(pair.second.has_given_up());
  EXPECT_EQ(pair.second.take_reason(), 0);
  EXPECT_EQ(pair.second.take_reason(), kNoRank);
}

TEST(Channel, RefusesAGoodbyeWhoseReasonIsNoRank) {
  ByteVector goodbye = bytes_of_frame(ByteVector(4, std::byte{255}));
  goodbye[5] = std::byte{0};
  EXPECT_STREQ(Bare().error_of(goodbye).what(), "rank 3 reports the loss of the invalid rank -1");
  goodbye[12] = std::byte{5};
  EXPECT_STREQ(Bare().error_of(goodbye).what(), "rank 3 sent a frame with a length of 5 bytes");
}

TEST(Channel, AnEndWithoutAGoodbyeNamesTheLostRankAfterItsLastFrame) {
  auto pair = mem_channels({.first_rank = 6});
  pair.first.send(FrameKind::control, payload_of(5, 1));
  { const Channel gone = std::move(pair.first); }
  EXPECT_TRUE(pair.second.pump()) << "the frame comes first";
  EXPECT_EQ(pair.second.receive()->payload, payload_of(5, 1));
  for (int time = 0; time < 2; ++time) {
    try {
      pair.second.pump();
      FAIL() << "the end is not reported";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::peer_lost);
      EXPECT_EQ(error.rank(), 6);
    }
  }
}

TEST(Channel, RefusesAFrameOfAnotherGeneration) {
  auto pair = mem_channels({}, 5, 6);
  pair.first.send(FrameKind::control, payload_of(5, 1));
  try {
    pair.second.pump();
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::internal);
    EXPECT_STREQ(error.what(), "rank 0 sent a frame with generation 5, expected 6");
  }
}

TEST(Channel, RefusesAnyWrongBitOfAHeader) {
  const ByteVector good = bytes_of_frame({});
  ASSERT_EQ(good.size(), kFrameHeaderBytes);
  for (size_t bit = 0; bit < 8 * 12; ++bit) {  // the length is tested separately
    Bare bare;
    auto bytes = good;
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    const bool another_kind = bit / 8 == 5 && bit % 8 < 2;  // control to goodbye or beat
    if (another_kind) continue;
    const Error error = bare.error_of(bytes);
    EXPECT_EQ(error.code(), Code::internal) << "bit " << bit;
    EXPECT_EQ(error.rank(), 3);
  }
}

TEST(Channel, RefusesALengthAboveTheLimitBeforeAllocating) {
  auto bytes = bytes_of_frame({});
  const uint32_t length = kMaxFrameBytes + 1;
  std::memcpy(bytes.data() + 12, &length, sizeof length);
  Bare bare;
  EXPECT_STREQ(bare.error_of(bytes).what(), "rank 3 sent a frame with a length of 67108865 bytes");
}

TEST(Channel, RefusesAGoodbyeWithAPayload) {
  auto bytes = bytes_of_frame(payload_of(1, 1));
  bytes[5] = std::byte{0};
  Bare bare;
  EXPECT_EQ(bare.error_of(bytes).code(), Code::internal);
}

TEST(Channel, ABeatHasOneByte) {
  auto pair = mem_channels({});
  pair.first.send(FrameKind::beat, {std::byte{1}});
  while (pair.second.pump()) {
  }
  const auto beat = pair.second.receive();
  ASSERT_TRUE(beat);
  EXPECT_EQ(beat->kind, FrameKind::beat);
  EXPECT_EQ(beat->payload, ByteVector{std::byte{1}});
  EXPECT_EQ(pair.second.received_bytes(), kFrameHeaderBytes + kBeatBytes);
  for (const size_t length : {0, 2}) {
    auto bytes = bytes_of_frame(ByteVector(length));
    bytes[5] = std::byte{3};
    EXPECT_EQ(Bare().error_of(bytes).code(), Code::internal) << length;
  }
}

TEST(Channel, ACutFrameIsNeverReceived) {
  const ByteVector good = bytes_of_frame(payload_of(40, 2));
  for (size_t length = 0; length < good.size(); ++length) {
    Bare bare;
    EXPECT_EQ(bare.error_of({good.begin(), good.begin() + length}).code(), Code::ok);
    EXPECT_EQ(bare.channel.receive(), std::nullopt);
    bare.link.reset();
    EXPECT_THROW(bare.channel.pump(), Error);
  }
}

/// A link that records how many bytes each call has sent.
class NotingLink final : public Link {
 public:
  explicit NotingLink(std::vector<size_t>& calls) : calls_(calls) {}
  size_t send_some(ConstBytes bytes) override {
    calls_.push_back(bytes.size());
    return bytes.size();
  }
  size_t send_pieces(std::span<const ConstBytes> pieces) override {
    size_t bytes = 0;
    for (const ConstBytes piece : pieces) bytes += piece.size();
    calls_.push_back(bytes);
    return bytes;
  }
  size_t receive_some(MutableBytes) override { return 0; }
  int fd() const override { return -1; }

 private:
  std::vector<size_t>& calls_;
};

TEST(Channel, LongFramesThatAreLentTogetherLeaveInOneCall) {
  std::vector<size_t> calls;
  Channel channel(std::make_unique<NotingLink>(calls), 0, 5);
  const ByteVector head(kHeadBytes);
  const auto lend = [&](const ByteVector& bytes) {
    const ConstBytes piece = bytes;
    channel.lend(FrameKind::data, head, {&piece, 1});
  };
  const ByteVector brief = payload_of(1 * KiB, 1), long_one = payload_of(100 * KiB, 2);
  const size_t front = kFrameHeaderBytes + kHeadBytes;
  lend(brief);
  EXPECT_EQ(calls, std::vector{front + 1 * KiB});
  lend(long_one);
  lend(long_one);
  lend(brief);  // stays in order
  EXPECT_EQ(calls.size(), 1u);
  EXPECT_TRUE(channel.pump());
  EXPECT_EQ(calls, (std::vector{front + 1 * KiB, 3 * front + 201 * KiB}));
  EXPECT_EQ(channel.sent_bytes(), channel.queued_bytes());
}

TEST(Channel, AnUnreadFloodStopsTheReading) {
  auto pair = mem_channels({.capacity = 64 * KiB});
  for (int i = 0; i < 40; ++i) pair.first.send(FrameKind::data, payload_of(MiB, i));
  while (pair.second.pump() || pair.first.pump()) {
  }
  EXPECT_GT(pair.first.unsent_bytes(), 20 * MiB);
  for (int i = 0; i < 40;) {
    while (auto frame = pair.second.receive()) EXPECT_EQ(frame->payload, payload_of(MiB, i++));
    pair.first.pump();
    pair.second.pump();
  }
  EXPECT_EQ(pair.first.unsent_bytes(), 0u);
}

TEST(Channel, TakesNoMemoryForAFrameThatIsOnlyAnnounced) {
  Bare bare;
  ByteVector start = bytes_of_frame(payload_of(100, 1));
  const uint32_t length = kMaxFrameBytes;
  std::memcpy(start.data() + kFrameHeaderBytes - sizeof length, &length, sizeof length);
  const size_t before = test::heap_bytes();
  EXPECT_EQ(bare.error_of(start).code(), Code::ok);
  EXPECT_LT(test::heap_bytes(), before + kMaxFrameBytes / 8);
}

}  // namespace
}  // namespace hvd
