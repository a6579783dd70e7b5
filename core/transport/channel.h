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

/// 16 bytes before every payload; docs/wire.md fixes them: magic, version, kind, generation, length.
inline constexpr size_t kFrameHeaderBytes = 16;
/// No frame is longer; a length above it comes from a stranger or a mistake.
inline constexpr size_t kMaxFrameBytes = 64 * MiB;

/// Owned and driven by one thread; never blocks.
class Channel {
 public:
  /// `peer` is the global rank at the other end; `generation` is put into and expected in every frame.
  Channel(std::unique_ptr<Link> link, int peer, uint32_t generation);

  int peer() const { return peer_; }
  int fd() const { return link_->fd(); }

  /// Queues a frame and sends what fits.
  void send(FrameKind kind, ByteVector payload);

  /// Moves bytes both ways; true when anything moved. Throws Error{peer_lost, rank = peer} on an end
  /// without a goodbye, Error{internal} on a frame of another generation or a malformed one.
  /// Reading stops while more than `unread_limit` bytes of frames wait in receive().
  bool pump();

  /// The oldest whole frame; a goodbye is not returned but remembered.
  std::optional<Frame> receive();
  /// The same without taking it; nullptr when there is none.
  const Frame* front() const;

  size_t unsent_bytes() const { return unsent_bytes_; }
  bool said_goodbye() const { return goodbye_received_; }
  /// The last frame. Afterwards nothing may be sent.
  void send_goodbye();

 private:
  std::unique_ptr<Link> link_;
  int peer_;
  uint32_t generation_;
  std::deque<ByteVector> unsent_;
  size_t unsent_bytes_ = 0;
  size_t sent_of_front_ = 0;
  bool goodbye_received_ = false;
  // … reading state is the implementer's
};

}  // namespace hvd
