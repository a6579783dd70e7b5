"""What an attacker between two ranks sees and does."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest
from cluster import must, why_no_namespaces

#: In the peer card of each rank, which is among the first things that ranks tell each other.
CARD = b"HOROVOD_FUSION_THRESHOLD"
_ALL_PROTOCOLS = 3  # ETH_P_ALL
_ROOM = 64 << 20
_SO_RCVBUFFORCE = 33
_CLONE_NEWNET = 0x40000000


def tap_of(interface: str, namespace: str) -> socket.socket:
    """Enters the network namespace of that name first, with the calling thread."""
    with open(f"/run/netns/{namespace}") as name:
        if ctypes.CDLL(None, use_errno=True).setns(name.fileno(), _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_PROTOCOLS))
    tap.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _ROOM)
    tap.bind((interface, 0))
    tap.settimeout(0.1)
    return tap


@contextlib.contextmanager
def sniffed(*marks: bytes, interface: str, namespace: str) -> Iterator[set[bytes]]:
    """Those of `marks` that are in a packet on the interface meanwhile. Other jobs of this machine
    must not use it: theirs would be seen too."""
    seen: set[bytes] = set()
    packets = 0
    ended = threading.Event()

    def listen(tap: socket.socket) -> None:
        nonlocal packets
        while True:
            try:
                packet = tap.recv(1 << 17)
            except TimeoutError:
                if ended.is_set():
                    return
                continue
            packets += 1
            seen.update(mark for mark in marks if mark in packet)

    with ThreadPoolExecutor(1) as thread:
        try:
            tap = thread.submit(tap_of, interface, namespace).result()
        except PermissionError:
            pytest.skip("only root can see packets")
        listening = thread.submit(listen, tap)
        try:
            yield seen
        finally:
            ended.set()
            listening.result()
            tap.close()
    assert packets > 0, f"nothing was sent on {interface} of {namespace}"


@dataclass(frozen=True)
class Loopback:
    """What is sent by programs that were started through `enter`."""

    enter: list[str]  #: goes before the words of a command
    seen: set[bytes]


@contextlib.contextmanager
def sniffed_loopback(*marks: bytes) -> Iterator[Loopback]:
    """`marks` are looked for on the loopback of a network namespace that has nothing else."""
    if (reason := why_no_namespaces()) is not None:
        pytest.skip(reason)
    name = f"hvd{os.getpid()}-loopback"
    must("ip", "netns", "add", name)
    try:
        must("ip", "-n", name, "link", "set", "lo", "up")
        with sniffed(*marks, interface="lo", namespace=name) as seen:
            yield Loopback(["ip", "netns", "exec", name], seen)
    finally:
        must("ip", "netns", "del", name)


@dataclass
class Proxy:
    """Passes connections on to a port, and flips a bit of what comes back from it."""

    port: int  #: of the server
    place: int  #: of the byte, in what the server sends on a connection
    flipped: bool = False
    _listener: socket.socket = field(
        default_factory=lambda: socket.create_server(("127.0.0.1", 0)), init=False
    )

    @property
    def own_port(self) -> int:
        return int(self._listener.getsockname()[1])

    def serve(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _pass_on(self, client: socket.socket) -> None:
        passed = 0
        server = socket.create_connection(("127.0.0.1", self.port))
        with client, server, contextlib.suppress(OSError):
            while True:
                for source in select.select([client, server], [], [])[0]:
                    data = bytearray(source.recv(1 << 16))
                    if not data:
                        return
                    if source is server:
                        self._flip(data, self.place - passed)
                        passed += len(data)
                    (client if source is server else server).sendall(data)

    def _flip(self, data: bytearray, place: int) -> None:
        if 0 <= place < len(data):
            data[place] ^= 1
            self.flipped = True
