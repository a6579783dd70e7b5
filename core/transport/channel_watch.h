// What a driver wants to hear of a Channel.
#pragma once

#include "core/transport/channel.h"
#include "core/transport/waiter.h"

namespace hvd {

/// A channel without a socket has nothing to watch.
inline void watch(Waiter& waiter, const Channel& channel, uint64_t tag) {
  if (channel.fd() >= 0) waiter.watch(channel.fd(), tag);
}

/// For a channel that `waiter` watches under `tag`: what cannot be sent now is sent when there is
/// room; what has said goodbye has nothing more to tell, and what has given up needs nothing.
inline void watch_before_sleep(Waiter& waiter, const Channel& channel, uint64_t tag) {
  if (channel.fd() < 0) return;
  const bool unsent = channel.unsent_bytes() > 0;
  if (channel.has_given_up() || (channel.said_goodbye() && !unsent)) {
    waiter.forget(channel.fd());
  } else {
    waiter.watch_writable(channel.fd(), tag, unsent);
  }
}

/// A channel that is broken, if it leads to `peer`, is watched no longer.
inline void unwatch(Waiter& waiter, const Channel& channel, int peer) {
  if (channel.peer() == peer && channel.fd() >= 0) waiter.forget(channel.fd());
}

}  // namespace hvd
