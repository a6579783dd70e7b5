// A Link over two rings in shared memory, between a rank and the leader of its host.
#pragma once

#include <functional>
#include <memory>

#include "core/transport/link.h"
#include "core/transport/ring.h"

namespace hvd {

/// The memory of both rings must outlive the link. When one end is destroyed, the other reports a
/// loss after reading the remaining bytes. The death of a peer is detected elsewhere
/// (process_watch.h), since a dead process leaves no trace in the rings.
class ShmLink final : public Link {
 public:
  /// `wake_peer` rings the doorbell of rank `peer` if it is asleep. It is called after the seq_cst
  /// store that the peer must see.
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
