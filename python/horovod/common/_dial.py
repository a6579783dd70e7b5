"""The connecting end of authenticated channels."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass

from horovod.common._channel import Channel, Message, Stalled, Unproved

#: A gate that is crowded by strangers gives each a fraction of a second, which may be too short on
#: a busy core. A wrong key looks the same from here, so the tries are few.
_TRIES = 10
_PAUSE_SECONDS = 0.1


@dataclass(frozen=True)
class Patience:
    """How long to wait for the other end, in seconds."""

    connect: float  #: until a host answers; an unreachable address times out
    total: float  #: until the proof is complete, also if it arrives byte by byte


def dial(host: str, port: int, secret: bytes, hello: Message, patience: Patience) -> Channel:
    """Connects to a gate, sends `hello` and waits for the first message of the other end, which
    proves that it knows the secret; its content is dropped.

    Raises: OSError if no process answers there; Closed. The channel has no timeout.
    """
    deadline = time.monotonic() + patience.total
    for tries_left in reversed(range(_TRIES)):
        sock = _connect(host, port, min(deadline, time.monotonic() + patience.connect))
        try:
            return _prove(sock, secret, hello, deadline)
        except (Unproved, Stalled):
            raise
        except ConnectionError:  # Closed is one
            if not tries_left or time.monotonic() + _PAUSE_SECONDS >= deadline:
                raise
        time.sleep(_PAUSE_SECONDS)
    raise AssertionError("the last try returns or raises")


def _prove(sock: socket.socket, secret: bytes, hello: Message, deadline: float) -> Channel:
    """Owns `sock`."""
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # a host may go without a word
        channel = Channel(sock, secret, "dialer")
        channel.meet(deadline)
        channel.send(hello)
        channel.receive(deadline)
    except BaseException:
        sock.close()
        raise
    channel.set_timeout(None)
    return channel


def _connect(host: str, port: int, deadline: float) -> socket.socket:
    """To the first address of `host` that answers."""
    problem = OSError(f"{host} has no address")
    for *_, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        left = deadline - time.monotonic()
        if left <= 0:
            break
        try:
            return socket.create_connection((str(address[0]), port), left)
        except OSError as error:
            problem = error
    raise problem
