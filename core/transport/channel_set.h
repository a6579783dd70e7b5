// A set of channels with one purpose: the negotiation tree, or the peers of a group.
#pragma once

#include <functional>

#include "core/transport/channel.h"

namespace hvd {

/// Owned and used by one thread; never blocks.
class ChannelSet {
 public:
  virtual ~ChannelSet() = default;

  using Visit = std::function<void(Channel&)>;
  /// Visits every channel except forgotten ones.
  virtual void for_each_channel(const Visit& visit) = 0;
  /// Sends and receives what it can; returns whether any bytes moved. Throws Error{peer_lost, rank}
  /// if a peer is lost.
  virtual bool pump() = 0;
  /// Stops reading from and sending to `rank`, whose channel (if any) is broken.
  virtual void forget(int rank) = 0;
  /// Sends the last frame on every channel.
  virtual void say_goodbye() = 0;
  /// Sends it with a reason: the rank that is lost, or this rank.
  virtual void give_up(int lost) = 0;
  /// Returns whether all frames are sent and, unless `after_loss`, every peer has said goodbye.
  /// Forgotten channels do not count.
  virtual bool parted(bool after_loss) const = 0;
  /// Returns whether there are queued bytes that the sockets have not accepted.
  virtual bool has_unsent() const = 0;
};

}  // namespace hvd
