"""Encrypted messages between two ends, and what third parties can do to them: nothing."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
from typing import Any

import pytest

from horovod.common._channel import Channel, Closed, Stalled, Unproved, secret_of
from horovod.common._dial import Patience, dial


def pair(left_key: bytes = b"k", right_key: bytes = b"k") -> tuple[Channel, Channel, Any]:
    ours, theirs = socket.socketpair()
    caller = Channel(ours, secret_of(left_key, "test"), "acceptor")
    rank_end = Channel(theirs, secret_of(right_key, "test"), "dialer")
    rank_end.meet()
    caller.meet()
    return caller, rank_end, theirs


def test_messages_arrive_in_both_directions() -> None:
    caller, end, _ = pair()
    end.send(("hello", 1))
    caller.send(("welcome",))
    caller.send(("work", b"x" * 100))
    assert caller.receive() == ("hello", 1)
    assert [end.receive(), end.receive()] == [("welcome",), ("work", b"x" * 100)]
    assert caller.arrived() == []


def test_asking_what_has_arrived_waits_for_nothing() -> None:
    caller, end, _ = pair()
    caller.set_timeout(3600)
    asked = threading.Thread(target=caller.arrived, daemon=True)
    asked.start()
    asked.join(30)
    assert not asked.is_alive()
    end.send(("hello",))
    assert caller.arrived() == [("hello",)]


def test_others_see_the_length_and_nothing_else() -> None:
    caller, end, _ = pair()
    end.send(("weights", b"of the first layer"))
    raw = caller._sock.recv(1 << 16, socket.MSG_PEEK)
    assert b"weights" not in raw and b"layer" not in raw
    assert caller.receive() == ("weights", b"of the first layer")


@pytest.mark.parametrize("who", ["caller", "rank"])
def test_another_key_is_found_before_anything_is_unpickled(who: str) -> None:
    caller, end, _ = pair(right_key=b"other")
    sender, taker = (end, caller) if who == "caller" else (caller, end)
    sender.send(("hello",))
    with pytest.raises(Closed, match="does not know the key"):
        taker.receive()


def test_a_message_cannot_come_twice_or_back_or_changed() -> None:
    for change in ("twice", "changed"):
        caller, end, _ = pair()
        end.send(("hello", "x" * 10))
        raw = caller._sock.recv(1 << 16)
        caller._buffer += raw + raw if change == "twice" else raw[:-1] + bytes([raw[-1] ^ 1])
        with pytest.raises(Closed, match="does not know the key"):
            for _ in range(2):
                caller.receive()
    caller, end, wire = pair()
    caller.send(("welcome",))
    wire.sendall(wire.recv(1 << 16))
    with pytest.raises(Closed, match="does not know the key"):
        caller.receive()


def spoiled(stream: bytes, chance: random.Random) -> bytes:
    """`stream` with one change: other bytes, some twice, or some that are missing."""
    begin = chance.randrange(len(stream))
    end = min(len(stream), begin + chance.choice([1, 8, 100]))
    piece = stream[begin:end]
    instead = chance.choice([chance.randbytes(len(piece)), b"\0" * len(piece), piece * 2, b""])
    return stream[:begin] + instead + stream[end:]


def taken_of(wire: bytes, caller: Channel, raw: Any) -> list[Any]:
    """What `caller` takes of it before it has enough of this peer."""
    raw.sendall(wire)
    raw.shutdown(socket.SHUT_WR)
    taken: list[Any] = []
    with pytest.raises(Closed):
        while True:
            taken += caller.arrived()
    return taken


def test_of_any_bytes_only_true_messages_are_taken_and_in_order() -> None:
    for seed in range(500):
        chance = random.Random(seed)
        caller, end, raw = pair()
        truth = [("hello", 1), ("work", chance.randbytes(300)), ("bye",)]
        for message in truth:
            end.send(message)
        stream = caller._sock.recv(1 << 16)
        wire = spoiled(stream, chance) if seed % 5 else chance.randbytes(chance.randrange(1, 2000))
        taken = taken_of(wire, caller, raw)
        assert taken == truth[: len(taken)], seed
        assert len(taken) < len(truth) or wire.startswith(stream), seed
        caller.close()
        raw.close()


def test_a_stranger_is_not_listened_to_for_long() -> None:
    caller, _, wire = pair()
    wire.sendall((1 << 30).to_bytes(8, "big") + bytes(32))
    with pytest.raises(Closed, match="a message of 1073741824 bytes was announced"):
        caller.receive()


def test_of_an_unproved_peer_a_few_kilobytes_are_kept() -> None:
    ours, wire = socket.socketpair()
    channel = Channel(ours, secret_of(b"k", "test"), "acceptor")
    wire.sendall(bytes(32) + (4096).to_bytes(8, "big") + bytes(16 + 4095))
    assert channel.arrived() == []
    assert len(channel._buffer) == 8 + 16 + 4095
    wire.sendall(bytes(1 << 16))
    with pytest.raises(Unproved):
        channel.arrived()
    assert len(channel._buffer) < 32 + 8 + 4096 + 16


def test_after_a_send_that_stalled_nothing_else_is_sent() -> None:
    sender, taker, _ = pair()
    sender.set_timeout(0.2)
    with pytest.raises(Stalled, match=r"nothing was taken for 0\.2 s"):
        sender.send(("much", bytes(16 << 20)))
    taker.send(("hello",))
    assert sender.receive() == ("hello",)
    with pytest.raises(Closed, match="an earlier message"):
        sender.send(("more",))


def test_a_send_that_makes_progress_has_all_the_time_that_it_needs() -> None:
    sender, taker, _ = pair()
    sender.send(("hello",))
    taker.receive()
    sender.set_timeout(1)
    sleeps = iter([0.4] * 5)
    data = bytes(4 << 20)

    def take() -> None:
        """For longer than the timeout, but never without taking something for so long."""
        message = None
        while message is None:
            time.sleep(next(sleeps, 0))
            message = next(iter(taker.arrived()), None)
        assert message == ("much", data)

    thread = threading.Thread(target=take)
    thread.start()
    sender.send(("much", data))
    thread.join()


def drip(listener: socket.socket, data: bytes) -> None:
    """Answers each connection with single bytes at intervals."""
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection, contextlib.suppress(OSError):
            for place in range(len(data)):
                connection.sendall(data[place : place + 1])
                time.sleep(0.02)


def test_dialing_has_one_deadline_however_slowly_bytes_come() -> None:
    """Each byte comes well within it, and together they announce a message that never ends."""
    listener = socket.create_server(("127.0.0.1", 0))
    data = bytes(32) + (4000).to_bytes(8, "big") + bytes(32 + 4000)
    thread = threading.Thread(target=drip, args=(listener, data), daemon=True)
    thread.start()
    with listener, pytest.raises(Stalled, match="no answer came in time"):
        dial(*listener.getsockname(), secret_of(b"k", "test"), ("hello",), Patience(5, 0.5))


def test_a_connection_that_a_crowded_gate_drops_is_made_again() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    secret = secret_of(b"k", "test")

    def serve() -> None:
        for _ in range(3):
            listener.accept()[0].close()
        channel = Channel(listener.accept()[0], secret, "acceptor")
        channel.meet()
        assert channel.receive() == ("hello",)
        channel.send(("welcome",))
        channel.send(("more",))

    thread = threading.Thread(target=serve)
    thread.start()
    channel = dial(*listener.getsockname(), secret, ("hello",), Patience(5, 30))
    assert channel.receive() == ("more",)
    thread.join()
    listener.close()


def test_who_does_not_know_the_key_is_not_dialed_again() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    dialed = []

    def serve() -> None:
        channel = Channel(listener.accept()[0], secret_of(b"other", "test"), "acceptor")
        channel.meet()
        channel.send(("welcome",))
        dialed.append(channel)

    thread = threading.Thread(target=serve)
    thread.start()
    with listener, pytest.raises(Unproved, match="does not know the key"):
        dial(*listener.getsockname(), secret_of(b"k", "test"), ("hello",), Patience(5, 30))
    thread.join()
    assert len(dialed) == 1
