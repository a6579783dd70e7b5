"""Strangers at a port of a job: thousands that say nothing, and some of each kind that says
something wrong."""

from __future__ import annotations

import hashlib
import hmac
import os
import resource
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest


@contextmanager
def many_descriptors(count: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] < count:
        pytest.skip(f"{count} descriptors are needed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], count), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def stranger(port: int) -> socket.socket:
    """Connects without waiting for it, and says nothing."""
    connection = socket.socket()
    connection.setblocking(False)
    connection.connect_ex(("127.0.0.1", port))
    return connection


def challenge() -> bytes:
    return struct.pack("<IBBH", 0x4A445648, 2, 0, 0) + os.urandom(32)


def proof(key: bytes) -> bytes:
    """Of the form that it should have; as from another connection or another job."""
    claim = struct.pack("<16sII", b"data", 1, 1)
    return claim + hmac.digest(key, claim, hashlib.sha256)


#: What a stranger says as soon as it is connected.
WORDS: dict[str, Callable[[], bytes]] = {
    "garbage": lambda: os.urandom(1 << 16),
    "oversized": lambda: challenge() + os.urandom(1 << 16),
    "truncated": lambda: challenge()[:39],
    "another job": lambda: challenge() + proof(os.urandom(32)),
}


def descriptors(pid: int) -> int:
    with suppress(OSError):
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return 0


def crowd(strangers: ExitStack, port: int, silent: int, speaking: int) -> None:
    """Many that are silent, and then those that speak, in front of any rank."""
    for _ in range(silent):
        strangers.enter_context(stranger(port))
    for say in WORDS.values():
        for _ in range(speaking // len(WORDS)):
            talker = strangers.enter_context(socket.create_connection(("127.0.0.1", port), 30))
            with suppress(OSError):
                talker.sendall(say())
