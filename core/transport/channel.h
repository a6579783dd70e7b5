// Frames over a Link: what both sides put on a connection once the handshake is done. A Channel
// queues what does not fit, refuses frames of another generation, and tells a goodbye from a loss.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "core/base/bytes.h"
#include "core/transport/link.h"

namespace hvd {

enum class FrameKind : uint8_t { goodbye = 0, control = 1, data = 2 };

struct Frame {
  FrameKind kind = FrameKind::control;
  ByteVector payload;
};

/// 16 bytes before every payload; docs/wire.md fixes them: magic, version, kind, generation,
/// length.
inline constexpr size_t kFrameHeaderBytes = 16;
/// No frame is longer; a length above it comes from a stranger or a mistake.
inline constexpr size_t kMaxFrameBytes = 64 * MiB;
/// Reading stops while more than this waits in receive(): a peer cannot fill our memory.
inline constexpr size_t kUnreadLimitBytes = 16 * MiB;

/// Owned and driven by one thread; never blocks.
class Channel {
 public:
  /// `peer` is the global rank at the other end; `generation` is put into and expected in every
  /// frame.
  Channel(std::unique_ptr<Link> link, int peer, uint32_t generation);

  int peer() const { return peer_; }
  int fd() const { return link_->fd(); }

  /// Queues a frame and sends what fits.
  void send(FrameKind kind, ByteVector payload);

  /// Moves bytes both ways; true when anything moved. Throws Error{peer_lost, rank = peer} on an
  /// end without a goodbye, Error{internal} on a frame of another generation or a malformed one.
  /// Reading stops while more than kUnreadLimitBytes of frames wait in receive(), and after a
  /// goodbye.
  bool pump();

  /// The oldest whole frame; a goodbye is not returned but remembered.
  std::optional<Frame> receive();
  /// The same without taking it; nullptr when there is none.
  const Frame* front() const { return unread_.empty() ? nullptr : &unread_.front(); }

  size_t unsent_bytes() const { return unsent_bytes_; }
  /// The peer's last frame has arrived; frames before it may still be in receive().
  bool said_goodbye() const { return goodbye_received_; }
  /// The last frame. Afterwards nothing may be sent.
  void send_goodbye();

 private:
  struct Header {
    FrameKind kind = FrameKind::goodbye;
    uint32_t bytes = 0;
  };
  void enqueue(FrameKind kind, ByteVector payload);
  bool write_some();
  bool read_some();
  /// What read_some() fills next: the rest of a long payload, or the buffer.
  MutableBytes room();
  void took(size_t bytes);
  void split_buffer();
  Header parse(ConstBytes header) const;
  void finish(FrameKind kind, ByteVector payload);

  std::unique_ptr<Link> link_;
  int peer_;
  uint32_t generation_;

  std::deque<ByteVector>
      unsent_;  ///< small frames and headers gathered, long payloads as they came
  size_t unsent_bytes_ = 0;
  size_t sent_of_front_ = 0;
  bool goodbye_sent_ = false;

  std::deque<Frame> unread_;
  size_t unread_bytes_ = 0;
  bool goodbye_received_ = false;
  ByteVector buffer_;  ///< received and not yet split into frames: [buffer_begin_, buffer_end_)
  size_t buffer_begin_ = 0;
  size_t buffer_end_ = 0;
  std::optional<Frame> partial_;  ///< a payload that is longer than what the buffer held of it
  size_t partial_received_ = 0;
};

}  // namespace hvd
