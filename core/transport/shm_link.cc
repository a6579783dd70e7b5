#include "core/transport/shm_link.h"

#include <utility>

#include "core/base/assert.h"
#include "core/base/error.h"

namespace hvd {

ShmLink::ShmLink(RingWriter out, RingReader in, int peer, std::function<void()> wake_peer)
    : out_(out), in_(in), peer_(peer), wake_peer_(std::move(wake_peer)) {}

ShmLink::~ShmLink() {
  out_.leave();
  in_.leave();
  wake_peer_();
}

size_t ShmLink::send_some(ConstBytes bytes) {
  if (out_.reader_left()) return 0;  // receive_some reports the loss
  const size_t count = out_.write(bytes);
  if (count > 0) wake_peer_();
  return count;
}

size_t ShmLink::receive_some(MutableBytes room) {
  HVD_ASSERT(!room.empty());
  const bool left = in_.writer_left();  // read first, so that data written before it left is
                                        // received before the loss
  const size_t count = in_.read(room);
  if (count == 0 && left) fail(Code::peer_lost, "the connection was closed", peer_);
  if (count > 0 && in_.take_waiting_writer()) wake_peer_();
  return count;
}

}  // namespace hvd
