#include "core/transport/encrypted_link.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/assert.h"
#include "core/base/error.h"
#include "core/transport/tcp_link.h"

namespace hvd {
namespace {

using RecordHeader = uint32_t;  ///< bytes of the plaintext
constexpr size_t kFrontBytes = sizeof(RecordHeader);
constexpr size_t kSealedBytes = kFrontBytes + EncryptedLink::kRecordBytes + RecordCipher::kTagBytes;
/// Two records: the rest of one, and one that may follow it.
constexpr size_t kIncomingBytes = 2 * kSealedBytes;
/// Maximum plaintext per call, so that the progress thread also reads.
constexpr size_t kBytesPerCall = 1 * MiB;

/// Returns the bytes after the first `skip`, at most `most`: a part of a piece if it has enough of
/// them, otherwise a copy in `room`.
ConstBytes bytes_of(std::span<const ConstBytes> pieces, size_t skip, MutableBytes room) {
  size_t copied = 0;
  for (const ConstBytes piece : pieces) {
    const size_t skipped = std::min(skip, piece.size());
    skip -= skipped;
    const ConstBytes part =
        piece.subspan(skipped, std::min(piece.size() - skipped, room.size() - copied));
    if (part.size() == room.size()) return part;
    std::ranges::copy(part, room.begin() + copied);
    copied += part.size();
    if (copied == room.size()) break;
  }
  return room.first(copied);
}

}  // namespace

EncryptedLink::EncryptedLink(std::unique_ptr<Link> inner, const SessionKeys& keys, int peer)
    : inner_(std::move(inner)),
      sealing_(keys.cipher, keys.send),
      opening_(keys.cipher, keys.receive),
      peer_(peer) {}

size_t EncryptedLink::send_pieces(std::span<const ConstBytes> pieces) {
  size_t sent = 0;
  while (sent < kBytesPerCall) {
    if (outgoing_begin_ == outgoing_end_ && !seal_next(pieces, sent)) break;
    if (!flush()) break;
    sent += outgoing_plain_;
  }
  return sent;
}

bool EncryptedLink::seal_next(std::span<const ConstBytes> pieces, size_t skip) {
  outgoing_.resize(kSealedBytes);
  const auto body = MutableBytes(outgoing_).subspan(kFrontBytes);
  const ConstBytes plain = bytes_of(pieces, skip, body.first(kRecordBytes));
  if (plain.empty()) return false;
  const auto header = static_cast<RecordHeader>(plain.size());
  std::memcpy(outgoing_.data(), &header, sizeof header);
  sealing_.seal(plain, ConstBytes(outgoing_).first(kFrontBytes),
                body.first(plain.size() + RecordCipher::kTagBytes));
  outgoing_begin_ = 0;
  outgoing_end_ = kFrontBytes + plain.size() + RecordCipher::kTagBytes;
  outgoing_plain_ = plain.size();
  return true;
}

bool EncryptedLink::flush() {
  while (outgoing_begin_ < outgoing_end_) {
    const auto rest =
        ConstBytes(outgoing_).subspan(outgoing_begin_, outgoing_end_ - outgoing_begin_);
    const size_t count = inner_->send_some(rest);
    if (count == 0) return false;
    outgoing_begin_ += count;
  }
  return true;
}

size_t EncryptedLink::receive_some(MutableBytes room) {
  HVD_ASSERT(!room.empty());
  if (const size_t taken = take(room); taken > 0) return taken;
  incoming_.resize(kIncomingBytes);
  const size_t count = inner_->receive_some(MutableBytes(incoming_).subspan(incoming_end_));
  incoming_end_ += count;
  return count == 0 ? 0 : take(room);
}

/// Afterwards incoming_ has space for the rest of a record.
size_t EncryptedLink::take(MutableBytes room) {
  size_t taken = 0;
  while (taken < room.size()) {
    const auto rest = room.subspan(taken);
    if (held_begin_ < held_.size()) {
      const size_t count = std::min(rest.size(), held_.size() - held_begin_);
      std::copy_n(held_.begin() + held_begin_, count, rest.begin());
      held_begin_ += count;
      taken += count;
    } else if (const auto count = open_next(rest)) {
      taken += *count;
    } else {
      break;
    }
  }
  if (is_broken_ && taken == 0) refuse();
  if (!next_record()) {
    std::ranges::copy(incoming(), incoming_.begin());
    incoming_end_ -= std::exchange(incoming_begin_, 0);
  }
  return taken;
}

std::optional<size_t> EncryptedLink::open_next(MutableBytes room) {
  const auto bytes = next_record();
  if (!bytes) return std::nullopt;
  is_broken_ |= *bytes == 0;
  if (is_broken_) return std::nullopt;
  const bool fits = *bytes <= room.size();
  if (!fits) {
    held_.resize(*bytes);
    held_begin_ = *bytes;  // empty until the record is verified
  }
  const MutableBytes target = fits ? room.first(*bytes) : MutableBytes(held_);
  const size_t sealed_bytes = *bytes + RecordCipher::kTagBytes;
  const ConstBytes header = incoming().first(kFrontBytes);
  is_broken_ = !opening_.open(incoming().subspan(kFrontBytes, sealed_bytes), header, target);
  if (is_broken_) return std::nullopt;
  incoming_begin_ += kFrontBytes + sealed_bytes;
  if (fits) return *bytes;
  held_begin_ = 0;
  return 0;
}

std::optional<size_t> EncryptedLink::next_record() const {
  const ConstBytes bytes = incoming();
  if (bytes.size() < kFrontBytes) return std::nullopt;
  RecordHeader plain;
  std::memcpy(&plain, bytes.data(), sizeof plain);
  if (plain > kRecordBytes) return 0;
  if (plain > 0 && bytes.size() < kFrontBytes + plain + RecordCipher::kTagBytes)
    return std::nullopt;
  return plain;
}

ConstBytes EncryptedLink::incoming() const {
  return ConstBytes(incoming_).subspan(incoming_begin_, incoming_end_ - incoming_begin_);
}

bool EncryptedLink::holds_bytes() const {
  return held_begin_ < held_.size() || next_record().has_value();
}

void EncryptedLink::refuse() const {
  fail(Code::peer_lost,
       "an encrypted record from " + peer_name(peer_) +
           " was changed, repeated, dropped or cut on its way; the connection is closed",
       peer_);
}

std::unique_ptr<Link> make_tcp_link(FileDescriptor socket, int peer,
                                    const std::optional<SessionKeys>& keys) {
  auto plain = std::make_unique<TcpLink>(std::move(socket), peer);
  if (!keys) return plain;
  return std::make_unique<EncryptedLink>(std::move(plain), *keys, peer);
}

}  // namespace hvd
