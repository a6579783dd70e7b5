// Registers Channels with a Waiter.
#pragma once

#include "core/transport/channel.h"
#include "core/transport/waiter.h"

namespace hvd {

/// Watches the channel's socket, if it has one.
inline void watch(Waiter& waiter, const Channel& channel, uint64_t tag) {
  if (channel.fd() >= 0) waiter.watch(channel.fd(), tag);
}

/// Updates the watch on a channel registered under `tag` before the thread sleeps: also waits for
/// writability if bytes are unsent. Removes channels that need no further events: those that have
/// given up, and those that have said goodbye and have nothing unsent.
inline void watch_before_sleep(Waiter& waiter, const Channel& channel, uint64_t tag) {
  if (channel.fd() < 0) return;
  const bool unsent = channel.unsent_bytes() > 0;
  if (channel.has_given_up() || (channel.said_goodbye() && !unsent)) {
    waiter.forget(channel.fd());
  } else {
    waiter.watch_writable(channel.fd(), tag, unsent);
  }
}

/// Stops watching a broken channel if it leads to `peer`.
inline void unwatch(Waiter& waiter, const Channel& channel, int peer) {
  if (channel.peer() == peer && channel.fd() >= 0) waiter.forget(channel.fd());
}

}  // namespace hvd
