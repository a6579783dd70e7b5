"""Authenticated messages over a TCP connection between two processes that know a secret.

Both ends know a secret that was made from a job's key. Each sends a random number (nonce) first;
the key of this one connection follows from both nonces and the secret. Every message carries an
HMAC-SHA-256 of its direction, its sequence number and its bytes. A message that a third party
sends, changes, replays or drops is therefore rejected before a byte of it is unpickled. Until the
first message is verified, an end buffers a few kilobytes at most. Nothing is encrypted.

A frame: length (8 bytes, big endian), HMAC (32 bytes), a pickled tuple.
"""

from __future__ import annotations

import hmac
import os
import pickle
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any, Literal

#: A message: a word that says what it is, and what belongs to it.
Message = tuple[Any, ...]
Side = Literal["acceptor", "dialer"]

_NONCE_BYTES = 32
_MAC_BYTES = 32
_LENGTH = struct.Struct("!Q")
_HEADER_BYTES = _LENGTH.size + _MAC_BYTES
#: The first message of each end is short. A peer that has not proved itself may send no more.
_MOST_BYTES_UNPROVED = 4096
_MOST_BUFFERED_UNPROVED = _NONCE_BYTES + _HEADER_BYTES + _MOST_BYTES_UNPROVED
#: No function and no result is as large; more is a broken length.
_MOST_BYTES = 1 << 40
_READ_BYTES = 1 << 20


class Closed(ConnectionError):
    """The connection can no longer be used."""


class Unproved(Closed):
    """The other end does not know the secret."""


class Stalled(Closed):
    """The other end has neither sent nor taken anything for too long."""


def secret_of(job_key: bytes, purpose: str) -> bytes:
    """The secret of both ends. Made from the job's key, but valid for `purpose` alone."""
    return hmac.digest(job_key, purpose.encode(), "sha256")


class Channel:
    """One end of a connection. Owns the socket, whose timeout is that of a send.

    For one thread, or one that sends and one that receives without a deadline.
    """

    def __init__(self, sock: socket.socket, secret: bytes, side: Side) -> None:
        """Sends the nonce; raises OSError when the connection is lost already."""
        self._sock = sock
        self._secret = secret
        self._side = side
        self._nonce = os.urandom(_NONCE_BYTES)
        self._key: bytes | None = None
        self._buffer = bytearray()
        self._sent = 0
        self._taken = 0
        self._sending_failed = False
        sock.sendall(self._nonce)

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        self._sock.close()

    def set_timeout(self, seconds: float | None) -> None:
        """The longest time for which a send may make no progress."""
        self._sock.settimeout(seconds)

    def send(self, message: Message) -> None:
        """Blocks until the system has taken it. The other end's nonce must have arrived.

        Raises: Stalled, Closed. Afterwards no further send is possible, since part of the message
        may be on its way; what has arrived can still be read.
        """
        assert self._key is not None
        if self._sending_failed:
            raise Closed("an earlier message could not be sent")
        body = pickle.dumps(message, protocol=5)
        mac = _mac(self._key, self._side, self._sent, body)
        self._sent += 1
        try:
            self._send_all(_LENGTH.pack(len(body)) + mac)
            self._send_all(body)
        except BaseException:
            self._sending_failed = True
            raise

    def meet(self, deadline: float | None = None) -> None:
        """Blocks until the other end's nonce is there. `deadline`: of time.monotonic()."""
        while self._key is None:
            self._read_until(deadline)
            self._take_nonce()

    def receive(self, deadline: float | None = None) -> Message:
        """Blocks for the next message."""
        while True:
            for message in self._messages(most=1):
                return message
            self._read_until(deadline)

    def arrived(self) -> list[Message]:
        """What can be read without blocking."""
        timeout = self._sock.gettimeout()
        self._sock.settimeout(0)  # with another one, Python waits before it reads
        try:
            self._read()
        finally:
            self._sock.settimeout(timeout)
        return list(self._messages())

    def _send_all(self, data: bytes) -> None:
        """Unlike `sendall`, whose timeout is that of all bytes together."""
        left = memoryview(data)
        try:
            while left:
                left = left[self._sock.send(left) :]
        except TimeoutError:
            raise Stalled(f"nothing was taken for {self._sock.gettimeout():g} s") from None
        except OSError as error:
            raise Closed(str(error)) from error

    def _read_until(self, deadline: float | None) -> None:
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise Stalled("no answer came in time")
            self._sock.settimeout(left)
        self._read()

    def _read(self) -> None:
        most = _READ_BYTES if self._taken else _MOST_BUFFERED_UNPROVED - len(self._buffer)
        try:
            received = self._sock.recv(most)
        except BlockingIOError:
            return
        except TimeoutError:
            raise Stalled("no answer came in time") from None
        except OSError as error:
            raise Closed(str(error)) from error
        if not received:
            raise Closed("the other end has closed the connection")
        self._buffer += received

    def _take_nonce(self) -> None:
        if self._key is not None or len(self._buffer) < _NONCE_BYTES:
            return
        theirs = bytes(self._buffer[:_NONCE_BYTES])
        del self._buffer[:_NONCE_BYTES]
        both = self._nonce + theirs if self._side == "acceptor" else theirs + self._nonce
        self._key = hmac.digest(self._secret, both, "sha256")

    def _messages(self, most: int | None = None) -> Iterator[Message]:
        self._take_nonce()
        theirs: Side = "dialer" if self._side == "acceptor" else "acceptor"
        while self._key is not None and most != 0 and len(self._buffer) >= _HEADER_BYTES:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if length > (_MOST_BYTES if self._taken else _MOST_BYTES_UNPROVED):
                raise Closed(f"a message of {length} bytes was announced")
            if len(self._buffer) < _HEADER_BYTES + length:
                return
            mac = bytes(self._buffer[_LENGTH.size : _HEADER_BYTES])
            body = bytes(memoryview(self._buffer)[_HEADER_BYTES : _HEADER_BYTES + length])
            del self._buffer[: _HEADER_BYTES + length]
            if not hmac.compare_digest(mac, _mac(self._key, theirs, self._taken, body)):
                raise Unproved("the other end does not know the key of this job")
            self._taken += 1
            most = None if most is None else most - 1
            yield pickle.loads(body)


def _mac(key: bytes, side: Side, number: int, body: bytes) -> bytes:
    made = hmac.new(key, side[:1].encode() + _LENGTH.pack(number), "sha256")
    made.update(_LENGTH.pack(len(body)))
    made.update(body)
    return made.digest()
