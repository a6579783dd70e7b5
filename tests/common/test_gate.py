"""Strangers at a listening socket: what they do ends their own connection and nothing else."""

from __future__ import annotations

import contextlib
import os
import resource
import selectors
import socket
import struct
import time
from collections.abc import Callable, Iterator

import pytest
from recorded import first_words

from horovod.common import _gate
from horovod.common._channel import Channel, Message, secret_of
from horovod.common._gate import Gate, run_ready

SECRET = secret_of(b"k", "test")


class Door:
    """A gate, and what it let in."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=_gate.BACKLOG)
        self.address = self.listener.getsockname()
        self.selector = selectors.DefaultSelector()
        self.admitted: list[list[Message]] = []
        self.gate = Gate(self.listener, SECRET, self.selector, self.admit, 5)

    def admit(self, channel: Channel, messages: list[Message]) -> None:
        channel.send(("welcome",))
        self.admitted.append(messages)
        channel.close()

    def turn(self, seconds: float | None = 0) -> None:
        run_ready(self.selector, seconds, self.gate.tend())

    def stranger(self) -> socket.socket:
        """Connected; the gate has not seen it yet."""
        return socket.create_connection(self.address)

    def is_watched(self) -> bool:
        return self.listener.fileno() in self.selector.get_map()

    def strangers(self) -> int:
        return len(self.selector.get_map()) - self.is_watched()


@pytest.fixture
def door() -> Iterator[Door]:
    made = Door()
    yield made
    made.gate.close()
    made.selector.close()


def reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def enter(door: Door) -> None:
    """A peer that knows the secret gets in, in turns of one thread."""
    channel = Channel(door.stranger(), SECRET, "dialer")
    before = len(door.admitted)
    while channel._keys is None:
        door.turn(0.01)
        with contextlib.suppress(BlockingIOError):
            channel.arrived()
    channel.send(("hello", before))
    while len(door.admitted) == before:
        door.turn(0.01)
    assert door.admitted[-1] == [("hello", before)]
    assert channel.receive() == ("welcome",)
    channel.close()


def test_a_reset_before_the_nonce_is_sent_ends_that_connection_only(door: Door) -> None:
    for _ in range(20):
        reset(door.stranger())
    for _ in range(40):
        door.turn()
    assert door.strangers() == 0
    enter(door)


def test_a_reset_at_each_byte_of_the_handshake_ends_that_connection_only(door: Door) -> None:
    frame = os.urandom(32) + (100).to_bytes(8, "big") + os.urandom(116)
    for count in range(len(frame) + 1):
        sock = door.stranger()
        sock.sendall(frame[:count])
        door.turn()
        reset(sock)
        door.turn()
    for _ in range(len(frame)):
        door.turn()
    assert door.strangers() == 0
    enter(door)


def test_evicting_a_stranger_that_has_just_sent_something(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its event is in the same turn as the connection that takes its place."""
    monkeypatch.setattr(_gate, "_LEAST_SECONDS", 0)
    kept = [door.stranger() for _ in range(_gate.MOST_STRANGERS)]
    while door.strangers() < _gate.MOST_STRANGERS:
        door.turn()
    for _ in range(30):  # bytes each: less than a nonce and a length
        for sock in kept:
            with contextlib.suppress(OSError):
                sock.sendall(b"x")
        kept.append(door.stranger())
        door.turn()
        assert door.strangers() == _gate.MOST_STRANGERS
    enter(door)
    for sock in kept:
        sock.close()


def test_where_all_have_just_come_the_next_waits_for_its_turn(door: Door) -> None:
    kept = [door.stranger() for _ in range(_gate.MOST_STRANGERS + 1)]
    while door.is_watched():
        door.turn()
    assert door.strangers() == _gate.MOST_STRANGERS
    enter(door)
    for sock in kept:
        sock.close()


def test_a_silent_stranger_goes_when_its_time_is_over(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    sock = door.stranger()
    while not door.strangers():
        door.turn()
    monkeypatch.setattr(_gate, "_GREETING_SECONDS", 0)
    door.turn()
    assert door.strangers() == 0
    sock.settimeout(5)
    assert len(sock.recv(100)) == 32 and sock.recv(100) == b""


@contextlib.contextmanager
def descriptors_used_up() -> Iterator[None]:
    """Within, this process can open none."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used: list[int] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        with contextlib.suppress(OSError):
            while True:
                used.append(os.dup(0))
        yield
    finally:
        for number in used:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_without_a_descriptor_the_listener_pauses_and_then_goes_on(
    door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    client = door.stranger()
    with descriptors_used_up():
        for _ in range(3):
            door.turn()
            assert not door.is_watched()  # else the next turn would come at once, and so on
            assert door.strangers() == 0
            pause = door.gate.tend()
            assert pause is not None and pause > 0
            door.turn(pause)
    client.close()
    enter(door)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("a connection cannot be accepted: Too many open files")


def test_without_a_descriptor_a_silent_stranger_gives_way(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_gate, "_LEAST_SECONDS", 0)
    first, second = door.stranger(), door.stranger()
    door.turn()
    assert door.strangers() == 1
    with descriptors_used_up():
        door.turn()
        door.turn()
    assert door.strangers() == 1
    first.settimeout(5)
    assert len(first.recv(100)) == 32 and first.recv(100) == b""
    first.close()
    second.close()


def answered(door: Door, sock: socket.socket, count: int) -> bytes:
    """What the gate sends first."""
    sock.setblocking(False)
    while True:
        door.turn(0.01)
        with contextlib.suppress(BlockingIOError):
            return sock.recv(count)


def dial(secret: bytes) -> Callable[[Door, socket.socket], None]:
    def trick(door: Door, sock: socket.socket) -> None:
        channel = Channel(sock, secret, "dialer")
        while channel._keys is None:
            door.turn(0.01)
            channel.arrived()
        channel.send(("hello", 0))

    return trick


def reflect(door: Door, sock: socket.socket) -> None:
    sock.sendall(2 * answered(door, sock, 32))


def oversize(door: Door, sock: socket.socket) -> None:
    sock.sendall(os.urandom(32) + (5000).to_bytes(8, "big"))


def cut(door: Door, sock: socket.socket) -> None:
    sock.sendall(first_words(SECRET)[:-1])
    sock.shutdown(socket.SHUT_WR)


TRICKS: dict[str, tuple[Callable[[Door, socket.socket], None], str]] = {
    "garbage": (lambda door, sock: sock.sendall(b"\xff" * 1000), "bytes was announced"),
    "oversized": (oversize, "a message of 5000 bytes was announced"),
    "replayed": (lambda door, sock: sock.sendall(first_words(SECRET)), "does not know the key"),
    "reflected": (reflect, "bytes was announced"),
    "another job": (dial(secret_of(b"other", "test")), "does not know the key"),
    "another purpose": (dial(secret_of(b"k", "other")), "does not know the key"),
    "silent": (lambda door, sock: None, "it has not proved the job's key in time"),
    "slow": (lambda door, sock: sock.sendall(b"x"), "it has not proved the job's key in time"),
    "truncated": (cut, ""),
    "reset": (lambda door, sock: reset(sock), ""),
}


@pytest.mark.parametrize("kind", TRICKS)
def test_the_first_refused_stranger_is_logged_and_no_other(
    kind: str, door: Door, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    trick, why = TRICKS[kind]
    kept = []
    for _ in range(5):
        kept.append(door.stranger())
        trick(door, kept[-1])
    is_patient = kind not in ("silent", "slow")
    while door.strangers() < len(kept) and not is_patient:
        door.turn(0.01)
    until = time.monotonic() + 30
    with monkeypatch.context() as patch:
        patch.setattr(_gate, "_GREETING_SECONDS", 60 if is_patient else 0)
        for _ in range(2 * len(kept)):
            door.turn()  # accepts one
        while door.strangers() and time.monotonic() < until:
            door.turn(0.01)
    assert door.strangers() == 0 and not door.admitted
    enter(door)
    words = [record.getMessage() for record in caplog.records]
    begin = "a connection from 127.0.0.1 to a port of this job was refused: "
    assert len(words) == (1 if why else 0), words
    assert all(line.startswith(begin) and why in line for line in words), words
    for sock in kept:
        sock.close()
