#include "core/transport/ring.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "core/base/aligned_buffer.h"
#include "core/base/error.h"

namespace hvd {
namespace {

/// A ring in its own memory, with both ends.
struct Pair {
  explicit Pair(size_t capacity)
      : buffer(ring_memory_bytes(capacity)), memory(buffer.data(), buffer.size()) {
    make_ring(memory);
    writer = std::make_unique<RingWriter>(memory);
    reader = std::make_unique<RingReader>(memory);
  }
  size_t write(std::string_view text) { return writer->write(as_bytes(text)); }
  std::string read(size_t room) {
    ByteVector out(room);
    out.resize(reader->read(out));
    return std::string(as_text(out));
  }

  AlignedBuffer buffer;
  MutableBytes memory;
  std::unique_ptr<RingWriter> writer;
  std::unique_ptr<RingReader> reader;
};

TEST(Ring, BytesGoRoundItsEndUnchanged) {
  Pair ring(8);
  std::string sent, received;
  for (int i = 0; i < 100; ++i) {
    const std::string piece(static_cast<size_t>(i % 7 + 1), static_cast<char>('a' + i % 26));
    EXPECT_EQ(ring.write(piece), piece.size());
    sent += piece;
    received += ring.read(8);
  }
  EXPECT_EQ(received, sent);
}

TEST(Ring, AFullRingTakesWhatFitsAndTheReaderIsToldThatItsWriterWaits) {
  Pair ring(8);
  EXPECT_EQ(ring.write("0123456789"), 8u);
  EXPECT_EQ(ring.write("x"), 0u);
  EXPECT_EQ(ring.read(3), "012");
  EXPECT_TRUE(ring.reader->take_waiting_writer());
  EXPECT_FALSE(ring.reader->take_waiting_writer());
  EXPECT_EQ(ring.write("89a"), 3u);
  EXPECT_EQ(ring.read(8), "34567");
  EXPECT_EQ(ring.read(8), "89a");
  EXPECT_FALSE(ring.reader->take_waiting_writer());
}

TEST(Ring, LeavingIsSeenByTheOtherEnd) {
  Pair ring(8);
  EXPECT_FALSE(ring.reader->writer_left());
  EXPECT_FALSE(ring.writer->reader_left());
  ring.writer->leave();
  EXPECT_TRUE(ring.reader->writer_left());
  ring.reader->leave();
  EXPECT_TRUE(ring.writer->reader_left());
}

TEST(Ring, ImpossibleCountsAreAnErrorAndNotAnIndex) {
  Pair ring(8);
  auto* control = reinterpret_cast<RingControl*>(ring.memory.data());
  control->written.store(9);
  std::byte room[16];
  EXPECT_THROW(ring.reader->read(room), Error);
  control->read.store(1);
  EXPECT_THROW(ring.writer->write(as_bytes("more than fits")), Error);
}

TEST(Ring, CarriesAStreamBetweenTwoThreads) {
  Pair ring(64);
  constexpr int kBytes = 200'000;
  std::thread writer([&] {
    std::byte piece[50];
    for (int sent = 0; sent < kBytes;) {
      const int count = std::min(sent % 50 + 1, kBytes - sent);
      for (int i = 0; i < count; ++i) piece[i] = static_cast<std::byte>((sent + i) * 7);
      const size_t written = ring.writer->write(ConstBytes(piece).first(count));
      if (written == 0) std::this_thread::yield();
      sent += static_cast<int>(written);
    }
  });
  int wrong = 0;
  std::byte piece[33];
  for (int got = 0; got < kBytes;) {
    const int count = static_cast<int>(ring.reader->read(piece));
    for (int i = 0; i < count; ++i) wrong += piece[i] != static_cast<std::byte>((got + i) * 7);
    got += count;
    if (count == 0) std::this_thread::yield();
  }
  writer.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace hvd
