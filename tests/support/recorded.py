"""What a third party in the network could have recorded of an authenticated channel."""

from __future__ import annotations

import socket

from horovod.common._channel import Channel


def first_words(secret: bytes) -> bytes:
    """All that a peer that knows `secret` sends until it is admitted, on some connection."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        Channel(ours, secret, "acceptor")  # sends what the other one waits for
        dialer = Channel(theirs, secret, "dialer")
        dialer.meet()
        dialer.send(("hello", 0))
        return ours.recv(1 << 16)
