#include "core/transport/channel.h"

#include <fmt/core.h>

#include <algorithm>

#include "core/base/assert.h"
#include "core/base/error.h"

namespace hvd {
namespace {

constexpr uint32_t kMagic = 0x31445648;  // "HVD1"
constexpr uint8_t kVersion = 1;
/// As it goes over the wire.
struct WireHeader {
  uint32_t magic = kMagic;
  uint8_t version = kVersion;
  uint8_t kind = 0;
  uint16_t zero = 0;
  uint32_t generation = 0;
  uint32_t length = 0;
};
static_assert(sizeof(WireHeader) == kFrameHeaderBytes);
constexpr FrameKind kLastFrameKind = FrameKind::data;

// Payloads up to this size are copied behind one another, so that many small frames leave in one
// call; above it a copy costs more than a further call.
constexpr size_t kGatherBytes = 4 * KiB;
// One receive takes many small frames, and of a long one at most this much is copied.
constexpr size_t kBufferBytes = 16 * KiB;

void append(ByteVector& to, ConstBytes bytes) { to.insert(to.end(), bytes.begin(), bytes.end()); }

}  // namespace

Channel::Channel(std::unique_ptr<Link> link, int peer, uint32_t generation)
    : link_(std::move(link)), peer_(peer), generation_(generation), buffer_(kBufferBytes) {}

void Channel::send(FrameKind kind, ByteVector payload) {
  HVD_ASSERT(kind != FrameKind::goodbye);
  HVD_ASSERT(payload.size() <= kMaxFrameBytes);
  enqueue(kind, std::move(payload));
  write_some();
}

void Channel::send_goodbye() {
  enqueue(FrameKind::goodbye, {});
  goodbye_sent_ = true;
  write_some();
}

void Channel::enqueue(FrameKind kind, ByteVector payload) {
  HVD_ASSERT(!goodbye_sent_);
  const WireHeader header{.kind = static_cast<uint8_t>(kind),
                          .generation = generation_,
                          .length = static_cast<uint32_t>(payload.size())};
  unsent_bytes_ += sizeof header + payload.size();

  if (unsent_.empty() || unsent_.back().size() > kBufferBytes) unsent_.emplace_back();
  append(unsent_.back(), std::as_bytes(std::span(&header, 1)));
  if (payload.size() <= kGatherBytes) {
    append(unsent_.back(), payload);
  } else {
    unsent_.push_back(std::move(payload));
    unsent_.emplace_back();  // what follows is gathered apart from the payload
  }
}

bool Channel::pump() {
  // Both always: a peer that waits for us to read must not wait for our turn to write.
  const bool received = read_some();
  const bool sent = write_some();
  return received || sent;
}

bool Channel::write_some() {
  bool moved = false;
  while (!unsent_.empty()) {
    const ByteVector& front = unsent_.front();
    if (sent_of_front_ == front.size()) {
      unsent_.pop_front();
      sent_of_front_ = 0;
      continue;
    }
    const size_t sent = link_->send_some(ConstBytes(front).subspan(sent_of_front_));
    if (sent == 0) break;
    moved = true;
    sent_of_front_ += sent;
    unsent_bytes_ -= sent;
  }
  return moved;
}

bool Channel::read_some() {
  bool moved = false;
  while (!goodbye_received_ && unread_bytes_ <= kUnreadLimitBytes) {
    const MutableBytes room = this->room();
    const size_t received = link_->receive_some(room);
    if (received == 0) break;
    moved = true;
    took(received);
    // A watched socket reports what is still to come; other links must be read until nothing comes.
    if (received < room.size() && fd() >= 0) break;
  }
  return moved;
}

MutableBytes Channel::room() {
  if (partial_) return MutableBytes(partial_->payload).subspan(partial_received_);
  return MutableBytes(buffer_).subspan(buffer_end_);
}

void Channel::took(size_t bytes) {
  if (!partial_) {
    buffer_end_ += bytes;
    split_buffer();
    return;
  }
  partial_received_ += bytes;
  if (partial_received_ < partial_->payload.size()) return;
  Frame whole = std::move(*partial_);
  partial_.reset();
  finish(whole.kind, std::move(whole.payload));
}

/// Turns the buffer into frames. Afterwards it holds less than a header and begins at 0.
void Channel::split_buffer() {
  while (!goodbye_received_ && buffer_end_ - buffer_begin_ >= kFrameHeaderBytes) {
    const auto here = ConstBytes(buffer_).subspan(buffer_begin_, buffer_end_ - buffer_begin_);
    const Header header = parse(here.first(kFrameHeaderBytes));
    const auto body = here.subspan(kFrameHeaderBytes);
    const size_t present = std::min<size_t>(header.bytes, body.size());
    buffer_begin_ += kFrameHeaderBytes + present;
    ByteVector payload(header.bytes);
    std::copy_n(body.begin(), present, payload.begin());
    if (present == header.bytes) {
      finish(header.kind, std::move(payload));
    } else {
      partial_ = Frame{header.kind, std::move(payload)};
      partial_received_ = present;
    }
  }
  std::copy(buffer_.begin() + buffer_begin_, buffer_.begin() + buffer_end_, buffer_.begin());
  buffer_end_ -= buffer_begin_;
  buffer_begin_ = 0;
}

Channel::Header Channel::parse(ConstBytes bytes) const {
  WireHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  const auto refuse = [&](const std::string& what) {
    fail(Code::internal, fmt::format("rank {} sent a frame with {}", peer_, what), peer_);
  };
  if (header.magic != kMagic) refuse("a wrong magic number");
  if (header.version != kVersion) {
    refuse(fmt::format("version {}, this is version {}", header.version, kVersion));
  }
  if (header.kind > static_cast<uint8_t>(kLastFrameKind)) {
    refuse(fmt::format("kind {}", header.kind));
  }
  if (header.zero != 0) refuse("bits set that must be zero");
  if (header.generation != generation_) {
    refuse(fmt::format("generation {}, this is generation {}", header.generation, generation_));
  }
  const auto kind = static_cast<FrameKind>(header.kind);
  if (header.length > (kind == FrameKind::goodbye ? 0 : kMaxFrameBytes)) {
    refuse(fmt::format("a length of {} bytes", header.length));
  }
  return {kind, header.length};
}

void Channel::finish(FrameKind kind, ByteVector payload) {
  if (kind == FrameKind::goodbye) {
    goodbye_received_ = true;
    return;
  }
  unread_bytes_ += payload.size();
  unread_.push_back({kind, std::move(payload)});
}

std::optional<Frame> Channel::receive() {
  if (unread_.empty()) return std::nullopt;
  Frame frame = std::move(unread_.front());
  unread_.pop_front();
  unread_bytes_ -= frame.payload.size();
  return frame;
}

}  // namespace hvd
