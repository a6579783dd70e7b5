"""The connecting end of authenticated channels."""

from __future__ import annotations

import socket
import time

from horovod.common._channel import Channel, Closed, Message, Stalled, Unproved

#: A gate that is crowded by strangers gives each a fraction of a second, which may be too short on
#: a busy core. A wrong key looks the same from here, so the tries are few.
_TRIES = 10
_PAUSE_SECONDS = 0.1


def dial(host: str, port: int, secret: bytes, hello: Message, seconds: float) -> Channel:
    """Connects to a gate, sends `hello` and waits for the first message of the other end, which
    proves that it knows the secret; its content is dropped.

    `seconds`: the deadline for all of it, also when the other end sends a byte now and then.
    Raises: OSError when nobody answers there; Closed. The channel has no timeout.
    """
    deadline = time.monotonic() + seconds
    for tries_left in reversed(range(_TRIES)):
        try:
            return _dial_once(host, port, secret, hello, deadline)
        except (Unproved, Stalled):
            raise
        except (Closed, ConnectionResetError):
            if not tries_left or time.monotonic() + _PAUSE_SECONDS >= deadline:
                raise
        time.sleep(_PAUSE_SECONDS)
    raise AssertionError("the last try returns or raises")


def _dial_once(host: str, port: int, secret: bytes, hello: Message, deadline: float) -> Channel:
    sock = _connect(host, port, deadline)
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
