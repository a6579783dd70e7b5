"""Encrypted messages over a TCP connection between two processes that know a secret.

Both ends know a secret that was made from a job's key. Each sends a random number (nonce) first;
two keys of this one connection, one for each direction, follow from both nonces and the secret.
Every message is encrypted and authenticated (ChaCha20-Poly1305) with its sequence number. A message
that a third party sends, changes, replays or drops is therefore rejected before a byte of it is
unpickled. Until the first message is verified, an end buffers a few kilobytes at most.

A frame: length of the pickled tuple (8 bytes, big endian), then this tuple, sealed.
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

from horovod._core import SEAL_BYTES, seal, unseal

#: A message: a word that says what it is, and what belongs to it.
Message = tuple[Any, ...]
Side = Literal["acceptor", "dialer"]

_NONCE_BYTES = 32
_LENGTH = struct.Struct("!Q")
#: The first message of each end is short. A peer that has not proved itself may send no more.
_MOST_BYTES_UNPROVED = 4096
_MOST_BUFFERED_UNPROVED = _NONCE_BYTES + _LENGTH.size + _MOST_BYTES_UNPROVED + SEAL_BYTES
#: No function and no result is as large; more is a broken length, and more than can be sealed.
_MOST_BYTES = 1 << 37
_READ_BYTES = 1 << 20


class Closed(ConnectionError):
    """The connection can no longer be used."""


class Lost(Closed):
    """The other end has gone."""


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
        self._keys: dict[Side, bytes] | None = None  # by sender
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
        assert self._keys is not None
        if self._sending_failed:
            raise Closed("an earlier message could not be sent")
        body = pickle.dumps(message, protocol=5)
        sealed = seal(self._keys[self._side], self._sent, body)
        self._sent += 1
        try:
            self._send_all(_LENGTH.pack(len(body)))
            self._send_all(sealed)
        except BaseException:
            self._sending_failed = True
            raise

    def meet(self, deadline: float | None = None) -> None:
        """Blocks until the other end's nonce is there. `deadline`: of time.monotonic()."""
        while self._keys is None:
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
            raise Lost(str(error)) from error

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
            raise Lost(str(error)) from error
        if not received:
            raise Lost("the other end has closed the connection")
        self._buffer += received

    def _take_nonce(self) -> None:
        if self._keys is not None or len(self._buffer) < _NONCE_BYTES:
            return
        theirs = bytes(self._buffer[:_NONCE_BYTES])
        del self._buffer[:_NONCE_BYTES]
        both = self._nonce + theirs if self._side == "acceptor" else theirs + self._nonce
        key = hmac.digest(self._secret, both, "sha256")
        sides: tuple[Side, ...] = ("acceptor", "dialer")
        self._keys = {side: hmac.digest(key, side.encode(), "sha256") for side in sides}

    def _messages(self, most: int | None = None) -> Iterator[Message]:
        self._take_nonce()
        theirs: Side = "dialer" if self._side == "acceptor" else "acceptor"
        while self._keys is not None and most != 0 and len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if length > (_MOST_BYTES if self._taken else _MOST_BYTES_UNPROVED):
                raise Closed(f"a message of {length} bytes was announced")
            end = _LENGTH.size + length + SEAL_BYTES
            if len(self._buffer) < end:
                return
            sealed = bytes(memoryview(self._buffer)[_LENGTH.size : end])
            del self._buffer[:end]
            try:
                body = unseal(self._keys[theirs], self._taken, sealed)
            except ValueError:
                raise Unproved("the other end does not know the key of this job") from None
            self._taken += 1
            most = None if most is None else most - 1
            yield pickle.loads(body)
