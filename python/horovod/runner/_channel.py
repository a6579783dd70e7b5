"""Messages between a process that called for a job and the ranks of that job.

Both ends know a secret that was made from the job's key. Each sends a random number first; from
both numbers and the secret follows the key of this one connection, and every message carries an
HMAC-SHA-256 of its direction, its number and its bytes. What a stranger sends, changes, repeats or
leaves out is therefore found before a byte of it is unpickled. Nothing is encrypted, like the
tensors of the job.

A frame: length (8 bytes, big endian), HMAC (32 bytes), a pickled tuple.
"""

from __future__ import annotations

import hmac
import os
import pickle
import socket
import struct
from collections.abc import Iterator
from typing import Any, Literal

#: A message: a word that says what it is, and what belongs to it.
Message = tuple[Any, ...]
Side = Literal["caller", "rank"]

_NONCE_BYTES = 32
_MAC_BYTES = 32
_LENGTH = struct.Struct("!Q")
_HEADER_BYTES = _LENGTH.size + _MAC_BYTES
#: What both say first is short. Whoever is not proved yet is not listened to for longer.
_MOST_BYTES_OF_STRANGERS = 4096
#: No function and no result is as large; more is a broken length.
_MOST_BYTES = 1 << 40
_READ_BYTES = 1 << 20


class Closed(ConnectionError):
    """The other end is gone, or is not who it should be."""


def secret_of(job_key: bytes) -> bytes:
    """The secret of both ends. From the job's key, but of no use for anything else."""
    return hmac.digest(job_key, b"horovod.run", "sha256")


class Channel:
    """One end of a connection. Owns the socket. For one thread, or one that sends and one that
    receives."""

    def __init__(self, sock: socket.socket, secret: bytes, side: Side) -> None:
        self._sock = sock
        self._secret = secret
        self._side = side
        self._nonce = os.urandom(_NONCE_BYTES)
        self._key: bytes | None = None
        self._buffer = bytearray()
        self._sent = 0
        self._taken = 0
        sock.sendall(self._nonce)

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        self._sock.close()

    def send(self, message: Message) -> None:
        """Blocks until the system has taken it. The other end's random number must be there."""
        assert self._key is not None
        body = pickle.dumps(message, protocol=5)
        head = _LENGTH.pack(len(body))
        mac = _mac(self._key, self._side, self._sent, body)
        self._sent += 1
        try:
            self._sock.sendall(head + mac)
            self._sock.sendall(body)
        except OSError as error:
            raise Closed(str(error)) from error

    def meet(self) -> None:
        """Blocks until the other end's random number is there."""
        while self._key is None:
            self._read(0)
            self._take_nonce()

    def receive(self) -> Message:
        """Blocks for the next message."""
        while True:
            for message in self._messages(most=1):
                return message
            self._read(0)

    def arrived(self) -> list[Message]:
        """What can be read without blocking."""
        self._read(socket.MSG_DONTWAIT)
        return list(self._messages())

    def _read(self, flags: int) -> None:
        try:
            received = self._sock.recv(_READ_BYTES, flags)
        except BlockingIOError:
            return
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
        both = self._nonce + theirs if self._side == "caller" else theirs + self._nonce
        self._key = hmac.digest(self._secret, both, "sha256")

    def _messages(self, most: int | None = None) -> Iterator[Message]:
        self._take_nonce()
        theirs: Side = "rank" if self._side == "caller" else "caller"
        while self._key is not None and most != 0 and len(self._buffer) >= _HEADER_BYTES:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if length > (_MOST_BYTES if self._taken else _MOST_BYTES_OF_STRANGERS):
                raise Closed(f"a message of {length} bytes was announced")
            if len(self._buffer) < _HEADER_BYTES + length:
                return
            mac = bytes(self._buffer[_LENGTH.size : _HEADER_BYTES])
            body = bytes(memoryview(self._buffer)[_HEADER_BYTES : _HEADER_BYTES + length])
            del self._buffer[: _HEADER_BYTES + length]
            if not hmac.compare_digest(mac, _mac(self._key, theirs, self._taken, body)):
                raise Closed("the other end does not know the key of this job")
            self._taken += 1
            most = None if most is None else most - 1
            yield pickle.loads(body)


def _mac(key: bytes, side: Side, number: int, body: bytes) -> bytes:
    made = hmac.new(key, side[:1].encode() + _LENGTH.pack(number), "sha256")
    made.update(_LENGTH.pack(len(body)))
    made.update(body)
    return made.digest()
