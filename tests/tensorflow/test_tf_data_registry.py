"""The registry of tf.data's service: its clients, and connections without the key."""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from horovod.common import _gate
from horovod.common._channel import secret_of
from horovod.common.exceptions import HorovodInternalError
from horovod.tensorflow.data import _registry
from horovod.tensorflow.data._registry import Client, Registry, Server, serving

KEY = b"k" * 32


@pytest.fixture
def server() -> Iterator[Server]:
    """Of two dispatchers with two workers each, in a thread that ends with the test."""
    made = Server(Registry(2, 2), KEY, "127.0.0.1")
    over = threading.Event()

    def run() -> None:
        while not over.is_set():
            made.turn()
        made.close()

    thread = threading.Thread(target=run)
    thread.start()
    yield made
    over.set()
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", made.port), 5).close()
    thread.join(30)
    assert not thread.is_alive()


def client(server: Server, key: bytes = KEY) -> Client:
    return Client({"lo": [("127.0.0.1", server.port)]}, key)


def test_what_one_registers_another_one_learns(server: Server) -> None:
    one, other = client(server), client(server)
    one.register_dispatcher(1, "grpc://here:1")
    assert other.wait_for_dispatcher_registration(1, 5) == "grpc://here:1"
    one.register_dispatcher(1, "grpc://here:1")
    with pytest.raises(ValueError, match="dispatcher 1 is at grpc://here:1 already"):
        other.register_dispatcher(1, "grpc://there:1")
    with pytest.raises(IndexError, match="there are 2 dispatchers, none is 2"):
        one.register_worker_for_dispatcher(2, 0)
    with pytest.raises(TypeError):
        one.register_worker_for_dispatcher(0)


def test_who_waits_is_answered_when_it_comes_or_when_time_is_over(server: Server) -> None:
    one = client(server)
    with pytest.raises(TimeoutError, match=r"dispatcher 0 has not come within 0\.05 s"):
        one.wait_for_dispatcher_registration(0, timeout=0.05)
    answers: list[Any] = []

    def wait() -> None:
        answers.append(one.wait_for_dispatcher_registration(0, 60))
        one.wait_for_dispatcher_worker_registration(0, 60)
        answers.append("workers")
        one.wait_for_shutdown()
        answers.append("end")

    thread = threading.Thread(target=wait)
    thread.start()
    one.register_dispatcher(0, "grpc://here:1")  # while the other thread waits for it
    one.register_worker_for_dispatcher(0, 0)
    with pytest.raises(TimeoutError, match="a worker of dispatcher 0"):
        one.wait_for_dispatcher_worker_registration(0, 0.05)
    one.register_worker_for_dispatcher(0, 1)
    one.end_dispatcher(0)
    one.wait_for_dispatcher_end(0)
    with pytest.raises(TimeoutError, match="the end of training"):
        one.wait_for_shutdown(0.05)
    one.shutdown()
    thread.join(60)
    assert answers == ["grpc://here:1", "workers", "end"]


def test_one_that_waits_and_goes_is_forgotten(server: Server) -> None:
    hello = ("call", "wait_for_shutdown", (), {})
    secret = secret_of(KEY, _registry._PURPOSE)
    for _ in range(3):
        _registry.dial("127.0.0.1", server.port, secret, hello, _registry._PATIENCE).close()
    one = client(server)
    one.register_dispatcher(0, "here")
    deadline = time.monotonic() + 30
    while server._waiting and time.monotonic() < deadline:
        one.wait_for_dispatcher_registration(0, 5)
    assert not server._waiting


@pytest.mark.parametrize("name", ["__class__", "_check", "__init__", "_running", "nothing"])
def test_only_what_is_offered_can_be_called(server: Server, name: str) -> None:
    one = client(server)
    with pytest.raises(ValueError, match="the compute service has no"):
        one._call(name)
    with pytest.raises(AttributeError):
        getattr(one, f"{name}_")


def test_another_key_calls_nothing(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("horovod.common._dial._PAUSE_SECONDS", 0)
    with pytest.raises(HorovodInternalError, match="the compute service does not answer: lo 127"):
        client(server, b"other").shutdown()
    client(server).shutdown()


def test_one_that_is_gone_is_an_internal_error(server: Server) -> None:
    one = client(server)
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        one._place = nobody.getsockname()
    with pytest.raises(HorovodInternalError, match=r"register_dispatcher: .* does not answer"):
        one.register_dispatcher(0, "here")


def test_who_says_that_training_is_over_needs_nobody_who_hears_it() -> None:
    """The compute job may have ended by then; the client may be new or have called before."""
    with serving(Registry(1, 1), KEY) as addresses:
        before = Client(addresses, KEY)
        before.register_dispatcher(0, "here")
        new = Client(addresses, KEY)
    for one in (before, new):
        one.end_dispatcher(0)
        one.shutdown()
        with pytest.raises(HorovodInternalError, match="does not answer"):
            one.wait_for_shutdown()


# ---- strangers ---------------------------------------------------------------------------------


class Trap:
    """Runs code in the process that unpickles it."""

    ran = False

    def __reduce__(self) -> Any:
        return setattr, (Trap, "ran", True)


def relay(listener: socket.socket, port: int, change: int) -> None:
    """Between client and server, without the key: the proof of both ends passes; of what the server
    says, everything from byte `change` on is replaced by a pickle."""
    with contextlib.suppress(OSError):
        while True:
            ours, _ = listener.accept()
            theirs = socket.create_connection(("127.0.0.1", port))
            threading.Thread(target=copy, args=(ours, theirs, 1 << 60), daemon=True).start()
            copy(theirs, ours, change)


def copy(source: socket.socket, sink: socket.socket, unchanged: int) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data[:unchanged])
            if len(data) > unchanged:
                trap = pickle.dumps(Trap())
                sink.sendall(struct.pack("!Q", len(trap)) + bytes(32) + trap)
                break
            unchanged -= len(data)
    with contextlib.suppress(OSError):
        source.shutdown(socket.SHUT_RDWR)
        sink.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("change", [0, 32, 100, 32 + 40 + 25])
def test_a_relay_without_the_key_runs_no_code_in_the_client(
    server: Server, change: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("horovod.common._dial._TRIES", 1)
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=relay, args=(listener, server.port, change), daemon=True)
    thread.start()
    with pytest.raises(HorovodInternalError, match="does not answer"):
        Client({"lo": [listener.getsockname()]}, KEY).shutdown()
    assert not Trap.ran
    listener.close()
    client(server).shutdown()


def test_strangers_cost_neither_threads_nor_many_descriptors_and_keep_nobody_out(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    threads, before = threading.active_count(), len(os.listdir("/proc/self/fd"))
    kept = []
    for index in range(3 * _gate.MOST_STRANGERS):
        sock = socket.create_connection(("127.0.0.1", server.port), 30)
        with contextlib.suppress(OSError):
            if index % 3 == 0:
                sock.sendall(os.urandom(200))
            elif index % 3 == 1:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                sock.close()
        kept.append(sock)
        if index % 100 == 0:
            client(server).register_worker_for_dispatcher(1, 0)
    own = sum(sock.fileno() >= 0 for sock in kept)
    assert threading.active_count() == threads
    assert len(os.listdir("/proc/self/fd")) - own - before <= _gate.MOST_STRANGERS + 2
    client(server).register_dispatcher(0, "here")
    assert caplog.text.count("to a port of this job was refused: ") == 1
    for sock in kept:
        sock.close()


def test_the_registry_is_served_on_the_chosen_interface_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOROVOD_GLOO_IFACE", "lo")
    with serving(Registry(1, 1), KEY) as addresses:
        ((host, port),) = addresses["host"]
        assert [*addresses] == ["host"] and host == "127.0.0.1"
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", port), 5)
        Client(addresses, KEY).shutdown()


def test_the_file_of_another_or_a_pipe_is_refused(tmp_path: Path) -> None:
    service = pytest.importorskip("horovod.tensorflow.data.compute_service")
    config = service.TfDataServiceConfig(1, 1, "compute", {"lo": [("127.0.0.1", 1)]}, KEY)
    path = tmp_path / "config.json"
    config.write(str(path))
    assert path.stat().st_mode & 0o777 == 0o600
    assert service.TfDataServiceConfig.read(str(path)) == config
    path.chmod(0o644)
    with pytest.raises(PermissionError, match="chmod 600"):
        service.TfDataServiceConfig.read(str(path), wait_for_file_creation=True)
    path.unlink()
    path.mkdir()
    with pytest.raises(IsADirectoryError):
        config.write(str(path))
    assert [*tmp_path.iterdir()] == [path]  # nothing with the key stays behind
    path.rmdir()
    os.mkfifo(path, 0o600)
    with pytest.raises(PermissionError, match="a regular file"):
        service.TfDataServiceConfig.read(str(path), wait_for_file_creation=True)
