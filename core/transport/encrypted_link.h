// A Link whose bytes travel in encrypted and authenticated records over another Link
// (docs/wire.md, docs/decisions/0093). A record that was changed, repeated, dropped or cut on its
// way ends the connection; nothing of it is delivered.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "core/base/bytes.h"
#include "core/transport/file_descriptor.h"
#include "core/transport/link.h"
#include "core/transport/record_cipher.h"

namespace hvd {

class EncryptedLink final : public Link {
 public:
  /// Maximum plaintext of a record: half of what a receive takes at once. Larger records save few
  /// calls and need more memory per connection.
  static constexpr size_t kRecordBytes = 32 * KiB;

  /// `peer` is the global rank at the other end, named in errors.
  EncryptedLink(std::unique_ptr<Link> inner, const SessionKeys& keys, int peer);

  size_t send_some(ConstBytes bytes) override { return send_pieces({&bytes, 1}); }
  /// Bytes count as sent when all of their record is: until then the link holds the sealed record,
  /// and the next call must begin with the same bytes.
  size_t send_pieces(std::span<const ConstBytes> pieces) override;
  /// Throws Error{peer_lost, peer} for a record that does not open.
  size_t receive_some(MutableBytes room) override;
  bool holds_bytes() const override;
  int fd() const override { return inner_->fd(); }

 private:
  /// Seals the bytes of `pieces` after the first `skip`, as many as a record holds. Returns false
  /// if there are none.
  bool seal_next(std::span<const ConstBytes> pieces, size_t skip);
  /// Sends the sealed record. Returns whether nothing of it is left.
  bool flush();
  size_t take(MutableBytes room);
  /// Opens the next record into `room` if it fits, otherwise into held_. Returns the bytes that are
  /// in `room`; nullopt if no record is complete, or it does not open.
  std::optional<size_t> open_next(MutableBytes room);
  /// The plaintext size of the next record, 0 if its header is invalid; nullopt if it is not
  /// complete.
  std::optional<size_t> next_record() const;
  ConstBytes incoming() const;
  [[noreturn]] void refuse() const;

  std::unique_ptr<Link> inner_;
  RecordCipher sealing_, opening_;
  int peer_;

  ByteVector outgoing_;        ///< a sealed record
  size_t outgoing_begin_ = 0;  ///< what of it the inner link has taken
  size_t outgoing_end_ = 0;    ///< its size; outgoing_begin_: there is none
  size_t outgoing_plain_ = 0;  ///< the bytes that are in it
  ByteVector incoming_;        ///< received records: [incoming_begin_, incoming_end_)
  size_t incoming_begin_ = 0, incoming_end_ = 0;
  ByteVector held_;  ///< plaintext that did not fit: [held_begin_, size)
  size_t held_begin_ = 0;
  bool is_broken_ = false;  ///< a record did not open; told once all before it are read
};

/// A link over a connected socket, which is encrypted if the handshake has made keys.
std::unique_ptr<Link> make_tcp_link(FileDescriptor socket, int peer,
                                    const std::optional<SessionKeys>& keys);

}  // namespace hvd
