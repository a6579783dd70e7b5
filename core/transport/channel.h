// Framed messages over a Link, used once the handshake is done. A Channel queues what the link does
// not accept at once, rejects frames of another generation, and distinguishes a goodbye from a
// loss.
//
// Large payloads need no copies: a frame can be sent from the caller's memory (zero-copy send, see
// lend()) and received into the caller's memory (posted receive, see land()).
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "core/base/aligned_buffer.h"
#include "core/base/bytes.h"
#include "core/base/error.h"
#include "core/transport/link.h"

namespace hvd {

/// `beat`: a sign of life between neighbours in the tree, with a payload of one byte.
enum class FrameKind : uint8_t { goodbye = 0, control = 1, data = 2, beat = 3 };
inline constexpr size_t kBeatBytes = 1;

struct Frame {
  FrameKind kind = FrameKind::control;
  ByteVector payload{};
  /// The part of the payload that was received into a posted buffer.
  MutableBytes landed{};
};

/// Header size: 16 bytes before every payload, as in docs/wire.md: magic, version, kind,
/// generation, length.
inline constexpr size_t kFrameHeaderBytes = 16;
/// Maximum frame size. A greater length indicates a foreign peer or a bug.
inline constexpr size_t kMaxFrameBytes = 64 * MiB;
/// Reading stops while receive() holds more than this, which bounds the memory that a peer can use.
inline constexpr size_t kUnreadLimitBytes = 16 * MiB;
/// Frames sent with lend() begin with a head of this size, which also matches a frame to its posted
/// receive. Header and head fill a cache line, so that the payload keeps its alignment (see
/// docs/decisions/0026).
inline constexpr size_t kHeadBytes = kCacheLine - kFrameHeaderBytes;

/// Owned and used by one thread; never blocks.
class Channel {
 public:
  /// `peer` is the global rank at the other end. `generation` is sent in and expected of every
  /// frame.
  Channel(std::unique_ptr<Link> link, int peer, uint32_t generation);

  int peer() const { return peer_; }
  int fd() const { return link_->fd(); }

  /// Queues a frame and sends as much as the link accepts.
  void send(FrameKind kind, ByteVector payload);
  /// Zero-copy send: queues a frame whose payload is `head` (kHeadBytes, copied) followed by
  /// `pieces`. The pieces must not change until sent_bytes() reaches the value that queued_bytes()
  /// has after this call. Short frames are sent at once, long ones by pump().
  void lend(FrameKind kind, ConstBytes head, std::span<const ConstBytes> pieces);
  uint64_t queued_bytes() const { return sent_bytes_ + unsent_bytes_; }  ///< ever
  uint64_t sent_bytes() const { return sent_bytes_; }                    ///< ever
  uint64_t received_bytes() const { return received_bytes_; }            ///< ever

  /// Posts a receive: the frame of kind data whose payload is `head` followed by exactly
  /// target.size() bytes is received into `target`, and Frame::landed refers to it. `target` must
  /// stay valid until then. Receives must be posted in the order in which their frames arrive.
  /// Bytes of the frame that have already arrived are copied; a frame that is already complete is
  /// not affected.
  void land(ConstBytes head, MutableBytes target);

  /// Ends all use of borrowed memory: copies unsent pieces and cancels all posted receives.
  void return_loans();

  /// Sends and receives what it can; returns whether any bytes moved. Throws Error{peer_lost, rank
  /// = peer} if the connection ends without a goodbye, or with one before the peer has taken that
  /// of this end; Error{internal} for a malformed frame or one of another generation. What has
  /// arrived before the end of the connection can be received before it throws. Stops reading while
  /// receive() holds more than kUnreadLimitBytes, and after a goodbye.
  bool pump();

  /// Takes the oldest complete frame; nullopt if there is none. Goodbyes are not returned but
  /// recorded.
  std::optional<Frame> receive();
  /// Returns the oldest complete frame without taking it; nullptr if there is none.
  const Frame* front() const { return unread_.empty() ? nullptr : &unread_.front(); }

  size_t unsent_bytes() const { return unsent_bytes_; }
  /// Returns whether the peer's last frame has arrived. Earlier frames may still be in receive().
  bool said_goodbye() const { return goodbye_received_; }
  /// Returns whether the peer's goodbye carries a reason: it has lost a rank or failed. It needs no
  /// more data.
  bool has_given_up() const { return has_given_up_; }
  /// Returns that reason once: the rank that the peer has lost, or the peer's own rank; afterwards
  /// kNoRank.
  int take_reason() { return std::exchange(reason_, kNoRank); }
  /// Sends the last frame. No frame may be sent afterwards.
  void send_goodbye();
  /// Sends a goodbye with the reason that rank `lost` is lost.
  void give_up(int lost);

 private:
  struct Header {
    FrameKind kind = FrameKind::goodbye;
    uint32_t bytes = 0;
  };
  struct Unsent {
    ByteVector own{};
    ConstBytes lent{};
    ConstBytes bytes() const { return lent.empty() ? ConstBytes(own) : lent; }
  };
  struct Landing {
    std::array<std::byte, kHeadBytes> head{};
    MutableBytes target{};
  };
  void enqueue(FrameKind kind, ByteVector payload);
  void queue_rest(std::span<const ConstBytes> pieces, size_t sent);
  ByteVector& gathering();
  bool write_some();
  void took_off(size_t sent);
  bool read_some();
  size_t receive_before_end();
  void look_for_end();
  /// Returns the buffer for the next read: the rest of a long payload, or the receive buffer.
  MutableBytes room();
  void took(size_t bytes);
  void split_buffer();
  /// Consumes the part of a frame that is in `body`; returns its size.
  size_t begin_frame(const Header& header, ConstBytes body);
  std::optional<MutableBytes> landing_for(const Header& header, ConstBytes body);
  void land_rest(MutableBytes target);
  Header parse(ConstBytes header) const;
  int32_t rank_of(ConstBytes reason) const;
  void end_with(ByteVector reason);
  void finish(Frame frame);

  std::unique_ptr<Link> link_;
  int peer_;
  uint32_t generation_;

  std::deque<Unsent>
      unsent_;  ///< small frames and headers are gathered; long payloads are separate entries
  size_t unsent_bytes_ = 0;
  uint64_t sent_bytes_ = 0;
  uint64_t received_bytes_ = 0;
  size_t sent_of_front_ = 0;
  bool goodbye_sent_ = false;

  std::deque<Frame> unread_;
  size_t unread_bytes_ = 0;
  bool goodbye_received_ = false;
  bool has_given_up_ = false;
  int32_t reason_ = kNoRank;
  AlignedBuffer
      buffer_;  ///< received bytes not yet split into frames: [buffer_begin_, buffer_end_)
  size_t buffer_begin_ = 0;
  size_t buffer_end_ = 0;
  std::optional<Frame> partial_;  ///< a frame that was only partly in the buffer
  size_t partial_received_ = 0;   ///< bytes received of its payload or posted buffer
  size_t partial_bytes_ = 0;      ///< size of its payload, posted part included
  std::deque<Landing> landings_;
};

}  // namespace hvd
