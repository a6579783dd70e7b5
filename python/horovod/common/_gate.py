"""The listening end of authenticated channels: one socket, and the strangers that connected to it.

A connection is a stranger until its first message has proved that it knows the secret. Strangers
are bounded in number, time and bytes, and no error of theirs leaves the gate. The first that is
refused is logged, but not those that go by themselves, as a peer does that begins anew. Where there
is no room, because there are too many of them or because no descriptor is left, the oldest goes,
but not before it had a moment to prove itself; until then the listener is not watched. So a peer
that knows the secret gets in while any number of strangers connect.
"""

from __future__ import annotations

import logging
import selectors
import socket
import time
from collections.abc import Callable
from typing import NamedTuple

from horovod.common._channel import Channel, Closed, Lost, Message

#: Called with a channel whose first messages are verified. Owns it from then on.
Admit = Callable[[Channel, list[Message]], None]

#: Each costs a descriptor, of which a process often may have no more than 1024.
MOST_STRANGERS = 256
#: The longest time for a stranger to prove itself.
_GREETING_SECONDS = 10.0
#: The time that it has even where others wait. A peer needs a round trip.
_LEAST_SECONDS = 0.2
BACKLOG = 1024
_LATE = "it has not proved the job's key in time"


class _Stranger(NamedTuple):
    since: float
    address: str


class _OneLine:
    """A log for what strangers can cause at any rate."""

    def __init__(self) -> None:
        self._is_written = False

    def write(self, text: str) -> None:
        if not self._is_written:
            self._is_written = True
            logging.getLogger("horovod").warning("%s (further messages are suppressed)", text)


class Gate:
    """Owned by one thread, which also owns `selector`. The data of its keys are functions without
    arguments; see `run_ready`."""

    def __init__(
        self,
        listener: socket.socket,
        secret: bytes,
        selector: selectors.BaseSelector,
        admit: Admit,
        send_seconds: float,
    ) -> None:
        """Takes ownership of `listener`. `send_seconds`: the timeout of sends on its channels."""
        self._listener = listener
        self._secret = secret
        self._selector = selector
        self._admit = admit
        self._send_seconds = send_seconds
        self._strangers: dict[Channel, _Stranger] = {}  # the oldest first
        self._refusals, self._failures = _OneLine(), _OneLine()
        self._paused_until: float | None = None
        listener.setblocking(False)
        selector.register(listener, selectors.EVENT_READ, self._accept)

    def tend(self) -> float | None:
        """Drops strangers whose time is over, listens again after a pause. Returns after how many
        seconds it wants to be called again; None: only after an event."""
        now = time.monotonic()
        while self._strangers and self._since_oldest(now) >= _GREETING_SECONDS:
            self._refuse_oldest()
        if self._paused_until is not None and now >= self._paused_until:
            self._paused_until = None
            self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        if self._paused_until is not None:
            return self._paused_until - now
        return _GREETING_SECONDS - self._since_oldest(now) if self._strangers else None

    def close(self) -> None:
        for stranger in self._strangers:
            stranger.close()
        self._strangers.clear()
        self._listener.close()

    def _accept(self) -> None:
        if len(self._strangers) >= MOST_STRANGERS and not self._make_room():
            return
        try:
            connection, address = self._listener.accept()
        except (BlockingIOError, ConnectionError, InterruptedError):  # it has gone again
            return
        except OSError as error:  # no descriptor or no memory is left
            self._failures.write(f"a connection cannot be accepted: {error.strerror}")
            self._make_room()
            return
        try:
            connection.settimeout(self._send_seconds)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            channel = Channel(connection, self._secret, "acceptor")
            self._selector.register(channel, selectors.EVENT_READ, lambda: self._greet(channel))
        except OSError:
            connection.close()
            return
        self._strangers[channel] = _Stranger(time.monotonic(), address[0])

    def _greet(self, channel: Channel) -> None:
        try:
            messages = channel.arrived()
        except Lost:
            self._drop(channel)
            return
        except Closed as error:
            self._refuse(channel, str(error))
            return
        if messages:
            del self._strangers[channel]
            self._selector.unregister(channel)
            self._admit(channel, messages)

    def _make_room(self) -> bool:
        """Drops the oldest stranger if it had its moment; else pauses the listener until then."""
        now = time.monotonic()
        age = self._since_oldest(now) if self._strangers else 0.0
        if age >= _LEAST_SECONDS:
            self._refuse_oldest()
            return True
        self._selector.unregister(self._listener)
        self._paused_until = now + _LEAST_SECONDS - age
        return False

    def _since_oldest(self, now: float) -> float:
        return now - next(iter(self._strangers.values())).since

    def _refuse_oldest(self) -> None:
        self._refuse(next(iter(self._strangers)), _LATE)

    def _refuse(self, stranger: Channel, why: str) -> None:
        address = self._strangers[stranger].address
        self._refusals.write(
            f"a connection from {address} to a port of this job was refused: {why}"
        )
        self._drop(stranger)

    def _drop(self, stranger: Channel) -> None:
        del self._strangers[stranger]
        self._selector.unregister(stranger)
        stranger.close()


def run_ready(selector: selectors.BaseSelector, *limits: float | None) -> None:
    """Waits until something is ready, at most the shortest of `limits` in seconds (None: no limit),
    and calls the functions of what is. An event whose key has gone or changed meanwhile is stale:
    another function of the same turn has closed its socket, perhaps opened another one as the same
    descriptor."""
    seconds = min((limit for limit in limits if limit is not None), default=None)
    for key, _ in selector.select(seconds):
        if selector.get_map().get(key.fd) is key:
            key.data()
