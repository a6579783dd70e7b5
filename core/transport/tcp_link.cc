#include "core/transport/tcp_link.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <system_error>

#include "core/base/assert.h"
#include "core/base/error.h"

namespace hvd {

size_t TcpLink::send_some(ConstBytes bytes) {
  ssize_t sent;
  do {
    sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  // Full or broken: a broken socket becomes readable, and receive_some reports the loss.
  return sent < 0 ? 0 : static_cast<size_t>(sent);
}

size_t TcpLink::send_pieces(std::span<const ConstBytes> pieces) {
  constexpr size_t kMostPieces = 16;
  std::array<iovec, kMostPieces> vectors;
  size_t count = 0;
  for (const ConstBytes piece : pieces) {
    if (count == kMostPieces) break;
    vectors[count++] = {const_cast<std::byte*>(piece.data()), piece.size()};
  }
  msghdr message{};
  message.msg_iov = vectors.data();
  message.msg_iovlen = count;
  ssize_t sent;
  do {
    sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  return sent < 0 ? 0 : static_cast<size_t>(sent);  // as in send_some
}

size_t TcpLink::receive_some(MutableBytes room) {
  HVD_ASSERT(!room.empty());
  ssize_t received;
  do {
    received = ::recv(socket_.get(), room.data(), room.size(), MSG_DONTWAIT);
  } while (received < 0 && errno == EINTR);
  if (received > 0) return static_cast<size_t>(received);
  if (received == 0) fail(Code::peer_lost, peer_name(peer_) + " closed the connection", peer_);
  if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
  fail(Code::peer_lost,
       "the connection to " + peer_name(peer_) +
           " failed: " + std::generic_category().message(errno),
       peer_);
}

}  // namespace hvd
