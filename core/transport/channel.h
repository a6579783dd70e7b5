// Frames over a Link: what both sides put on a connection once the handshake is done. A Channel
// queues what does not fit, refuses frames of another generation, and tells a goodbye from a loss.
//
// What is large need not be copied on its way: a frame may be sent from where its bytes lie (they
// are on loan until they are sent), and be received where they are wanted (a landing).
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

enum class FrameKind : uint8_t { goodbye = 0, control = 1, data = 2 };

struct Frame {
  FrameKind kind = FrameKind::control;
  ByteVector payload{};
  /// What follows the payload, where it has landed.
  MutableBytes landed{};
};

/// 16 bytes before every payload; docs/wire.md fixes them: magic, version, kind, generation,
/// length.
inline constexpr size_t kFrameHeaderBytes = 16;
/// No frame is longer; a length above it comes from a stranger or a mistake.
inline constexpr size_t kMaxFrameBytes = 64 * MiB;
/// Reading stops while more than this waits in receive(): a peer cannot fill our memory.
inline constexpr size_t kUnreadLimitBytes = 16 * MiB;
/// A frame that is lent begins with a head of this size; a landing is recognised by it. Header and
/// head are a cache line, so that the bytes behind them keep their alignment on the way
/// (docs/decisions, 26).
inline constexpr size_t kHeadBytes = kCacheLine - kFrameHeaderBytes;

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
  /// Queues a frame whose payload is `head` (kHeadBytes, copied) and `pieces`, which must not
  /// change until sent_bytes() has reached what queued_bytes() is afterwards. A short one is sent
  /// at once, a long one by pump().
  void lend(FrameKind kind, ConstBytes head, std::span<const ConstBytes> pieces);
  uint64_t queued_bytes() const { return sent_bytes_ + unsent_bytes_; }  ///< ever
  uint64_t sent_bytes() const { return sent_bytes_; }                    ///< ever

  /// When a frame of kind data comes whose payload is `head` and then as many bytes as `target`
  /// has, they go there, and the frame says so. Until then `target` is on loan. Landings are made
  /// in the order in which their frames come. What has come already of the frame is copied there; a
  /// whole one lands nowhere.
  void land(ConstBytes head, MutableBytes target);

  /// Nothing is on loan any more: copies what is not sent, forgets all landings.
  void return_loans();

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
  /// Its goodbye has a reason: it has lost a rank, or failed. It needs nothing more.
  bool has_given_up() const { return has_given_up_; }
  /// That reason, once: the rank that the peer has lost, or its own; then kNoRank.
  int take_reason() { return std::exchange(reason_, kNoRank); }
  /// The last frame. Afterwards nothing may be sent.
  void send_goodbye();
  /// The same with a reason.
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
  /// What read_some() fills next: the rest of a long payload, or the buffer.
  MutableBytes room();
  void took(size_t bytes);
  void split_buffer();
  /// Takes as much of a frame as there is of it in `body`; how much that was.
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

  std::deque<Unsent> unsent_;  ///< small frames and headers gathered, long payloads as they came
  size_t unsent_bytes_ = 0;
  uint64_t sent_bytes_ = 0;
  size_t sent_of_front_ = 0;
  bool goodbye_sent_ = false;

  std::deque<Frame> unread_;
  size_t unread_bytes_ = 0;
  bool goodbye_received_ = false;
  bool has_given_up_ = false;
  int32_t reason_ = kNoRank;
  AlignedBuffer buffer_;  ///< received and not yet split into frames: [buffer_begin_, buffer_end_)
  size_t buffer_begin_ = 0;
  size_t buffer_end_ = 0;
  std::optional<Frame> partial_;  ///< a frame that is longer than what the buffer held of it
  size_t partial_received_ = 0;   ///< of its payload, or of what lands
  size_t partial_bytes_ = 0;      ///< of all that follows its header
  std::deque<Landing> landings_;
};

}  // namespace hvd
