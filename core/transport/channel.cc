#include "core/transport/channel.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "core/base/assert.h"
#include "core/base/error.h"

namespace hvd {
namespace {

constexpr uint32_t kMagic = 0x31445648;  // "HVD1"
constexpr uint8_t kVersion = 8;          // version 7 had no loss of the launcher
/// The wire format of the header.
struct WireHeader {
  uint32_t magic = kMagic;
  uint8_t version = kVersion;
  uint8_t kind = 0;
  uint16_t zero = 0;
  uint32_t generation = 0;
  uint32_t length = 0;
};
static_assert(sizeof(WireHeader) == kFrameHeaderBytes);
constexpr FrameKind kLastFrameKind = FrameKind::beat;

// Payloads up to this size are copied into one buffer, so that many small frames are sent with one
// system call; above it a copy costs more than another call.
constexpr size_t kGatherBytes = 4 * KiB;
// Size of the receive buffer: one receive takes many small frames, and copies at most this much of
// a long frame.
constexpr size_t kBufferBytes = 32 * KiB;
// Size of the first read of a frame with a posted receive: at most this much of its payload is
// copied, the rest is received in place.
constexpr size_t kFirstBytesOfLanding = 1 * KiB;
// Zero-copy sends up to this size are sent at once. Larger ones wait for pump(), so that
// consecutive frames are sent with one system call and only the last packet is partly filled
// (docs/decisions/0013).
constexpr size_t kLentAtOnceBytes = 64 * KiB;
// Memory for a long frame is allocated as its bytes arrive, this much ahead, so that a header alone
// cannot cause a large allocation. The longest data frame fits.
constexpr size_t kRoomAheadBytes = 2 * MiB;
// Maximum number of queue entries per system call.
constexpr size_t kPiecesACall = 8;

void append(ByteVector& to, ConstBytes bytes) { to.insert(to.end(), bytes.begin(), bytes.end()); }

WireHeader header_of(FrameKind kind, uint32_t generation, size_t length) {
  return {.kind = static_cast<uint8_t>(kind),
          .generation = generation,
          .length = static_cast<uint32_t>(length)};
}

bool begins_with(ConstBytes bytes, ConstBytes head) {
  return bytes.size() >= head.size() && std::memcmp(bytes.data(), head.data(), head.size()) == 0;
}

bool length_fits(FrameKind kind, size_t length) {
  if (kind == FrameKind::goodbye) return length == 0 || length == sizeof(int32_t);
  return kind == FrameKind::beat ? length == kBeatBytes : length <= kMaxFrameBytes;
}

}  // namespace

Channel::Channel(std::unique_ptr<Link> link, int peer, uint32_t generation)
    : link_(std::move(link)), peer_(peer), generation_(generation), buffer_(kBufferBytes) {}

void Channel::send(FrameKind kind, ByteVector payload) {
  HVD_ASSERT(kind != FrameKind::goodbye);
  HVD_ASSERT(payload.size() <= kMaxFrameBytes);
  enqueue(kind, std::move(payload));
  write_some();
}

void Channel::send_goodbye() { end_with({}); }

void Channel::give_up(int lost) {
  const int32_t rank = lost;
  ByteVector reason;
  append(reason, std::as_bytes(std::span(&rank, 1)));
  end_with(std::move(reason));
}

void Channel::end_with(ByteVector reason) {
  enqueue(FrameKind::goodbye, std::move(reason));
  goodbye_sent_ = true;
  write_some();
}

void Channel::enqueue(FrameKind kind, ByteVector payload) {
  HVD_ASSERT(!goodbye_sent_);
  const WireHeader header = header_of(kind, generation_, payload.size());
  unsent_bytes_ += sizeof header + payload.size();
  append(gathering(), std::as_bytes(std::span(&header, 1)));
  if (payload.size() <= kGatherBytes) {
    append(gathering(), payload);
  } else {
    unsent_.push_back({std::move(payload)});
    unsent_.emplace_back();  // later frames are gathered in a new entry
  }
}

/// Returns the last queue entry, to which small frames are appended.
ByteVector& Channel::gathering() {
  const bool fits =
      !unsent_.empty() && unsent_.back().lent.empty() && unsent_.back().own.size() <= kBufferBytes;
  if (!fits) unsent_.emplace_back();
  return unsent_.back().own;
}

void Channel::lend(FrameKind kind, ConstBytes head, std::span<const ConstBytes> pieces) {
  HVD_ASSERT(!goodbye_sent_ && head.size() == kHeadBytes);
  size_t length = head.size();
  for (const ConstBytes piece : pieces) length += piece.size();
  HVD_ASSERT(length <= kMaxFrameBytes);
  const WireHeader header = header_of(kind, generation_, length);
  std::array<std::byte, sizeof header + kHeadBytes> front;
  std::memcpy(front.data(), &header, sizeof header);
  std::memcpy(front.data() + sizeof header, head.data(), head.size());

  std::array<ConstBytes, kPiecesACall> first{front};
  const size_t count = std::min(pieces.size(), first.size() - 1);
  std::copy_n(pieces.begin(), count, first.begin() + 1);
  const bool at_once = unsent_bytes_ == 0 && length <= kLentAtOnceBytes;
  const size_t sent = at_once ? link_->send_pieces(std::span(first).first(count + 1)) : 0;
  sent_bytes_ += sent;
  unsent_bytes_ += sizeof header + length - sent;
  if (sent < front.size()) append(gathering(), ConstBytes(front).subspan(sent));
  queue_rest(pieces, sent - std::min(sent, front.size()));
}

/// Queues `pieces` without the first `sent` bytes.
void Channel::queue_rest(std::span<const ConstBytes> pieces, size_t sent) {
  for (const ConstBytes piece : pieces) {
    const size_t skip = std::min(sent, piece.size());
    sent -= skip;
    if (skip == piece.size()) continue;
    const ConstBytes rest = piece.subspan(skip);
    if (rest.size() <= kGatherBytes)
      append(gathering(), rest);
    else
      unsent_.push_back({.lent = rest});
  }
}

void Channel::return_loans() {
  for (Unsent& part : unsent_) {
    append(part.own, part.lent);  // one of the two is empty
    part.lent = {};
  }
  landings_.clear();
  for (Frame& frame : unread_) {
    append(frame.payload, frame.landed);
    unread_bytes_ += frame.landed.size();
    frame.landed = {};
  }
  if (!partial_ || partial_->landed.empty()) return;
  const size_t whole = partial_->payload.size() + partial_->landed.size();
  append(partial_->payload, ConstBytes(partial_->landed).first(partial_received_));
  partial_received_ = partial_->payload.size();
  partial_->payload.resize(whole);
  partial_->landed = {};
}

bool Channel::pump() {
  // Always write and read: a peer that waits for this rank to read must not wait for it to write.
  // Writes come first, because zero-copy frames have waited for this call.
  const bool sent = write_some();
  const bool received = read_some();
  return received || sent;
}

bool Channel::write_some() {
  bool moved = false;
  while (unsent_bytes_ > 0) {
    std::array<ConstBytes, kPiecesACall> pieces;
    size_t count = 0;
    for (const Unsent& part : unsent_) {
      if (count == pieces.size()) break;
      pieces[count] = part.bytes().subspan(count == 0 ? sent_of_front_ : 0);
      ++count;
    }
    const size_t sent = link_->send_pieces(std::span(pieces).first(count));
    took_off(sent);
    if (sent == 0) break;
    moved = true;
    // A watched socket reports when it is writable; meanwhile, read what the peer has sent.
    if (fd() >= 0) break;
  }
  return moved;
}

void Channel::took_off(size_t sent) {
  sent_bytes_ += sent;
  unsent_bytes_ -= sent;
  sent_of_front_ += sent;
  while (!unsent_.empty() && sent_of_front_ >= unsent_.front().bytes().size()) {
    sent_of_front_ -= unsent_.front().bytes().size();
    unsent_.pop_front();
  }
}

bool Channel::read_some() {
  if (goodbye_received_ && goodbye_sent_ && unsent_bytes_ > 0) look_for_end();
  bool moved = false;
  // What the link holds (at most two records) is read in any case: no descriptor reports it.
  while (!goodbye_received_ && (unread_bytes_ <= kUnreadLimitBytes || link_->holds_bytes())) {
    const size_t received = moved ? receive_before_end() : link_->receive_some(room());
    if (received == 0) break;
    moved = true;
    received_bytes_ += received;
    took(received);
    // A watched socket reports further data; other links must be read until no data arrives. For a
    // frame with a posted receive, only the beginning was read.
    const bool is_begun = partial_ && partial_received_ < kFirstBytesOfLanding;
    if (fd() >= 0 && !is_begun && !link_->holds_bytes()) break;
  }
  return moved;
}

/// The end of the connection is left to the next call: frames that came before it are taken first.
size_t Channel::receive_before_end() {
  try {
    return link_->receive_some(room());
  } catch (const Error&) {
    return 0;
  }
}

/// The peer sends nothing more, but it may have ended without waiting for this goodbye any longer.
void Channel::look_for_end() {
  std::byte nothing[1];
  link_->receive_some(nothing);
}

void Channel::land(ConstBytes head, MutableBytes target) {
  HVD_ASSERT(head.size() == kHeadBytes && !target.empty());
  const auto is_it = [&](const Frame& frame) {
    return frame.kind == FrameKind::data && begins_with(frame.payload, head);
  };
  if (partial_ && is_it(*partial_)) return land_rest(target);
  if (std::ranges::any_of(unread_, is_it)) return;
  std::ranges::copy(head, landings_.emplace_back(Landing{.target = target}).head.begin());
}

/// Directs the rest of the partly received frame to `target` and copies what has arrived.
void Channel::land_rest(MutableBytes target) {
  if (!partial_->landed.empty() || partial_bytes_ != kHeadBytes + target.size()) return;
  ByteVector& payload = partial_->payload;
  partial_received_ -= kHeadBytes;
  std::copy_n(payload.begin() + kHeadBytes, partial_received_, target.begin());
  payload.resize(kHeadBytes);
  partial_->landed = target;
}

MutableBytes Channel::room() {
  if (!partial_) {
    const bool awaits_long = !landings_.empty() && landings_.front().target.size() > kBufferBytes;
    const size_t end =
        awaits_long ? std::max(buffer_end_ + kHeadBytes, kFirstBytesOfLanding) : buffer_.size();
    return MutableBytes(buffer_.data(), end).subspan(buffer_end_);
  }
  if (!partial_->landed.empty()) return partial_->landed.subspan(partial_received_);
  partial_->payload.resize(std::min(partial_bytes_, partial_received_ + kRoomAheadBytes));
  return MutableBytes(partial_->payload).subspan(partial_received_);
}

void Channel::took(size_t bytes) {
  if (!partial_) {
    buffer_end_ += bytes;
    split_buffer();
    return;
  }
  partial_received_ += bytes;
  const bool lands = !partial_->landed.empty();
  if (partial_received_ < (lands ? partial_->landed.size() : partial_bytes_)) return;
  Frame whole = std::move(*partial_);
  partial_.reset();
  finish(std::move(whole));
}

/// Splits the buffer into frames. Afterwards it holds less than a header and a head, and starts at
/// 0.
void Channel::split_buffer() {
  while (!goodbye_received_ && buffer_end_ - buffer_begin_ >= kFrameHeaderBytes) {
    const auto here = ConstBytes(buffer_.data(), buffer_end_).subspan(buffer_begin_);
    const Header header = parse(here.first(kFrameHeaderBytes));
    const auto body = here.subspan(kFrameHeaderBytes);
    if (body.size() < std::min<size_t>(header.bytes, kHeadBytes)) break;
    buffer_begin_ += kFrameHeaderBytes + begin_frame(header, body);
  }
  std::copy(buffer_.data() + buffer_begin_, buffer_.data() + buffer_end_, buffer_.data());
  buffer_end_ -= buffer_begin_;
  buffer_begin_ = 0;
}

size_t Channel::begin_frame(const Header& header, ConstBytes body) {
  Frame frame;
  frame.kind = header.kind;
  const size_t present = std::min<size_t>(header.bytes, body.size());
  if (const auto target = landing_for(header, body)) {
    frame.payload.assign(body.begin(), body.begin() + kHeadBytes);
    frame.landed = *target;
    std::copy_n(body.begin() + kHeadBytes, present - kHeadBytes, frame.landed.begin());
  } else {
    frame.payload.reserve(std::min<size_t>(header.bytes, kRoomAheadBytes));
    frame.payload.assign(body.begin(), body.begin() + present);
  }
  if (present == header.bytes) {
    finish(std::move(frame));
  } else {
    partial_received_ = frame.landed.empty() ? present : present - kHeadBytes;
    partial_bytes_ = header.bytes;
    partial_ = std::move(frame);
  }
  return present;
}

std::optional<MutableBytes> Channel::landing_for(const Header& header, ConstBytes body) {
  if (landings_.empty() || header.kind != FrameKind::data) return std::nullopt;
  const Landing& next = landings_.front();
  if (header.bytes != kHeadBytes + next.target.size() || !begins_with(body, next.head))
    return std::nullopt;
  const MutableBytes target = next.target;
  landings_.pop_front();
  return target;
}

Channel::Header Channel::parse(ConstBytes bytes) const {
  WireHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  const auto refuse = [&](const std::string& what) {
    fail(Code::internal, fmt::format("rank {} sent a frame with {}", peer_, what), peer_);
  };
  if (header.magic != kMagic) refuse("a wrong magic number");
  if (header.version != kVersion) {
    refuse(fmt::format("version {}, expected {}", header.version, kVersion));
  }
  if (header.kind > static_cast<uint8_t>(kLastFrameKind)) {
    refuse(fmt::format("kind {}", header.kind));
  }
  if (header.zero != 0) refuse("bits set that must be zero");
  if (header.generation != generation_) {
    refuse(fmt::format("generation {}, expected {}", header.generation, generation_));
  }
  const auto kind = static_cast<FrameKind>(header.kind);
  if (!length_fits(kind, header.length)) refuse(fmt::format("a length of {} bytes", header.length));
  return {kind, header.length};
}

int32_t Channel::rank_of(ConstBytes reason) const {
  int32_t rank;
  std::memcpy(&rank, reason.data(), sizeof rank);
  if (rank < 0)
    fail(Code::internal,
         fmt::format("rank {} reports the loss of the invalid rank {}", peer_, rank), peer_);
  return rank;
}

void Channel::finish(Frame frame) {
  if (frame.kind == FrameKind::goodbye) {
    goodbye_received_ = true;
    has_given_up_ = !frame.payload.empty();
    if (has_given_up_) reason_ = rank_of(frame.payload);
    return;
  }
  unread_bytes_ += frame.payload.size();
  unread_.push_back(std::move(frame));
}

std::optional<Frame> Channel::receive() {
  if (unread_.empty()) return std::nullopt;
  Frame frame = std::move(unread_.front());
  unread_.pop_front();
  unread_bytes_ -= frame.payload.size();
  return frame;
}

}  // namespace hvd
