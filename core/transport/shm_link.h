// A Link over two rings in shared memory: how the ranks of one host talk to its leader.
#pragma once

#include <functional>
#include <memory>

#include "core/transport/link.h"
#include "core/transport/ring.h"

namespace hvd {

/// The memory of both rings outlives it. Destroying an end is a loss for the other once it has read
/// what was sent; that a peer died is learned elsewhere (process_watch.h), since a dead process
/// says nothing here.
class ShmLink final : public Link {
 public:
  /// `wake_peer` rings the doorbell of the rank `peer` if it is asleep. It is called after the
  /// seq_cst store that the peer shall see.
  ShmLink(RingWriter out, RingReader in, int peer, std::function<void()> wake_peer);
  ~ShmLink() override;

  size_t send_some(ConstBytes bytes) override;
  size_t receive_some(MutableBytes room) override;
  int fd() const override { return -1; }

 private:
  RingWriter out_;
  RingReader in_;
  int peer_;
  std::function<void()> wake_peer_;
};

}  // namespace hvd
