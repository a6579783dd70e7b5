"""Strangers at a port: connections without the key of the job, made by a process of its own.

python strangers.py PORT KIND BEGUN SECRET: connects to 127.0.0.1:PORT until its standard input
ends, at most MOST times and for MOST_SECONDS; makes the file BEGUN when it is at it; prints how
often. SECRET: of the port, in hexadecimal digits, for what others could have recorded there.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from recorded import first_words

from horovod.common._channel import Channel

SUPPORT = Path(__file__).resolve().parents[1] / "support"
MOST = 20_000
MOST_SECONDS = 60
#: What begins like the first message of a rank, and what a stranger may make of it.
FRAME = os.urandom(32) + (200).to_bytes(8, "big") + os.urandom(32 + 200)
KEPT = 400  #: connections that stay open at a time
BY_RESET = struct.pack("ii", 1, 0)


def connect(port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), 5)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, BY_RESET)
    return sock


def resets(port: int) -> Iterator[None]:
    """Each byte of the handshake is once the last one before a reset."""
    while True:
        for count in range(len(FRAME) + 1):
            with connect(port) as sock:
                sock.sendall(FRAME[:count])
            yield


def many(port: int, then: Callable[[socket.socket], object]) -> Iterator[None]:
    """The oldest of those that stay open gives way to the next."""
    kept: list[socket.socket] = []
    while True:
        kept.append(connect(port))
        with contextlib.suppress(OSError):  # the other end has had enough of it
            then(kept[-1])
        if len(kept) > KEPT:
            kept.pop(0).close()
        yield


def slow(port: int) -> Iterator[None]:
    kept = [connect(port) for _ in range(KEPT)]
    for place in range(len(FRAME)):
        for index, sock in enumerate(kept):
            try:
                sock.sendall(FRAME[place : place + 1])
            except OSError:
                kept[index] = connect(port)
            yield


def reflect(sock: socket.socket) -> None:
    sock.sendall(2 * sock.recv(32))


def belong_to_another_job(sock: socket.socket) -> None:
    channel = Channel(sock, os.urandom(32), "dialer")
    channel.meet(time.monotonic() + 5)
    channel.send(("hello", 0))


def replays(port: int, secret: bytes) -> Iterator[None]:
    recorded = first_words(secret)
    return many(port, lambda sock: sock.sendall(recorded))


KINDS: dict[str, Callable[[int, bytes], Iterator[None]]] = {
    "reset": lambda port, _: resets(port),
    "silent": lambda port, _: many(port, lambda sock: None),
    "garbage": lambda port, _: many(port, lambda sock: sock.sendall(os.urandom(1 << 16))),
    "slow": lambda port, _: slow(port),
    "replayed": replays,
    "reflected": lambda port, _: many(port, reflect),
    "another job": lambda port, _: many(port, belong_to_another_job),
}


def main(port: int, kind: str, begun: Path, secret: bytes) -> None:
    until = time.monotonic() + MOST_SECONDS
    count = 0
    with contextlib.suppress(OSError):  # the port is closed: the job is over
        for _ in KINDS[kind](port, secret):
            count += 1
            if count == 1:
                begun.touch()
            over = select.select([sys.stdin], [], [], 0)[0] or time.monotonic() > until
            if over or count == MOST:
                break
    print(count)


@contextlib.contextmanager
def at_work(port: int, kind: str, begun: Path, secret: bytes) -> Iterator[Callable[[], int]]:
    """Strangers at work in the context; afterwards the function says how many there were."""
    command = [sys.executable, __file__, str(port), kind, str(begun), secret.hex()]
    env = {**os.environ, "PYTHONPATH": str(SUPPORT)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen(command, env=env, text=True, **pipes)
    count = 0
    try:
        yield lambda: count
        told, _ = process.communicate(timeout=60)
        count = int(told)
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), bytes.fromhex(sys.argv[4]))
