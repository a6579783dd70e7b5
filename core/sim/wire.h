// One end of a connection of the simulated network: a MemLink, whose transfers have random lengths,
// that can be held up, closed and broken.
#pragma once

#include <memory>
#include <utility>

#include "core/transport/mem_link.h"

namespace hvd::sim {

class Wire final : public Link {
 public:
  Wire(std::unique_ptr<MemLink> link, int peer) : link_(std::move(link)), peer_(peer) {}

  size_t send_some(ConstBytes bytes) override { return link_ ? link_->send_some(bytes) : 0; }
  /// Gives no more right after it has given something, as a socket that is read once per event. So
  /// the end is seen later than what was sent before it.
  size_t receive_some(MutableBytes room) override {
    if (!link_ || is_held_ || std::exchange(has_given_, false)) return 0;
    size_t received = link_->receive_some(room);
    while (gives_all_ && received < room.size() && link_->available() > 0)
      received += link_->receive_some(room.subspan(received));
    gives_all_ = false;
    has_given_ = received > 0;
    return received;
  }
  int fd() const override { return -1; }

  int peer() const { return peer_; }
  /// While it is held, nothing from the peer arrives, not even the end of the connection. Bytes are
  /// not lost: TCP sends them again.
  void hold(bool held) {
    is_held_ = held;
    gives_all_ |= !held;
  }
  /// What has arrived while this end did not look is read at once.
  void look_again() { gives_all_ = true; }
  /// As the end of the process does: the peer reads what is in transit, and then the end.
  void close() { link_.reset(); }
  /// As a reset does: nothing more arrives on either end.
  void break_now() {
    if (link_) link_->break_now();
  }

 private:
  std::unique_ptr<MemLink> link_;  ///< nullptr after close()
  const int peer_;
  bool is_held_ = false;
  bool has_given_ = false;
  bool gives_all_ = false;
};

}  // namespace hvd::sim
