// A Link over a connected and authenticated stream socket (TCP, or a unix socket in tests); see
// socket.h.
#pragma once

#include "core/transport/file_descriptor.h"
#include "core/transport/link.h"

namespace hvd {

class TcpLink final : public Link {
 public:
  /// `peer` is the global rank at the other end, named in errors.
  TcpLink(FileDescriptor socket, int peer) : socket_(std::move(socket)), peer_(peer) {}

  size_t send_some(ConstBytes bytes) override;
  size_t send_pieces(std::span<const ConstBytes> pieces) override;
  size_t receive_some(MutableBytes room) override;
  int fd() const override { return socket_.get(); }

 private:
  FileDescriptor socket_;
  int peer_;
};

}  // namespace hvd
