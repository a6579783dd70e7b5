"""Where dispatchers, workers and the training job find each other: one small server.

It runs beside rank 0 of the compute job. Whoever has the job's key may call it.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import AuthenticationError
from multiprocessing.managers import BaseManager
from typing import Any, TypeVar

from horovod.common.exceptions import HorovodInternalError
from horovod.tensorflow.data._address import interface_addresses, own_address

T = TypeVar("T")
Addresses = Mapping[str, Sequence[tuple[str, int]]]


class Registry:
    """What is known. Any thread may call; those that wait, wait at most `timeout` seconds."""

    def __init__(self, dispatchers: int, workers_per_dispatcher: int) -> None:
        self._dispatchers = dispatchers
        self._workers_per_dispatcher = workers_per_dispatcher
        self._changed = threading.Condition()
        self._addresses: dict[int, str] = {}
        self._workers: dict[int, set[int]] = {}
        self._running = set(range(dispatchers))  #: those that somebody trains from, or will

    def _wait(self, wanted: Callable[[], bool], what: str, timeout: float | None) -> None:
        with self._changed:
            if not self._changed.wait_for(wanted, timeout):
                raise TimeoutError(f"{what} has not come within {timeout} s")

    def _change(self, change: Callable[[], object]) -> None:
        with self._changed:
            change()
            self._changed.notify_all()

    def _check(self, dispatcher: int) -> None:
        if not 0 <= dispatcher < self._dispatchers:
            raise IndexError(f"there are {self._dispatchers} dispatchers, none is {dispatcher}")

    def register_dispatcher(self, dispatcher_id: int, dispatcher_address: str) -> None:
        """Says where a dispatcher is. Raises ValueError when it is said to be elsewhere already."""
        self._check(dispatcher_id)
        known = self._addresses.setdefault(dispatcher_id, dispatcher_address)
        if known != dispatcher_address:
            raise ValueError(f"dispatcher {dispatcher_id} is at {known} already")
        self._change(lambda: None)

    def wait_for_dispatcher_registration(self, dispatcher_id: int, timeout: float) -> str:
        """Where a dispatcher is, once it is there."""
        self._check(dispatcher_id)
        self._wait(lambda: dispatcher_id in self._addresses, f"dispatcher {dispatcher_id}", timeout)
        return self._addresses[dispatcher_id]

    def register_worker_for_dispatcher(self, dispatcher_id: int, worker_id: int) -> None:
        """Says that a worker of a dispatcher runs."""
        self._check(dispatcher_id)
        self._change(lambda: self._workers.setdefault(dispatcher_id, set()).add(worker_id))

    def wait_for_dispatcher_worker_registration(self, dispatcher_id: int, timeout: float) -> None:
        """Returns once all workers of a dispatcher run."""
        self._check(dispatcher_id)
        self._wait(
            lambda: len(self._workers.get(dispatcher_id, ())) >= self._workers_per_dispatcher,
            f"a worker of dispatcher {dispatcher_id}",
            timeout,
        )

    def end_dispatcher(self, dispatcher_id: int) -> None:
        """Says that nobody trains from a dispatcher any more; with the last one the job ends."""
        self._check(dispatcher_id)
        self._change(lambda: self._running.discard(dispatcher_id))

    def shutdown(self) -> None:
        """The compute job may end."""
        self._change(self._running.clear)

    def wait_for_dispatcher_end(self, dispatcher_id: int) -> None:
        """Returns when nobody trains from a dispatcher any more."""
        self._wait(lambda: dispatcher_id not in self._running, "the end of training", None)

    def wait_for_shutdown(self, timeout: float | None = None) -> None:
        """Returns when the compute job may end."""
        self._wait(lambda: not self._running, "the end of training", timeout)


class _Server(BaseManager):
    """Here what is asked for is answered ..."""


class _Caller(BaseManager):
    """... and here it is asked: rank 0 does both, hence two."""


_Caller.register("registry")


def serve(registry: Registry, key: bytes) -> Addresses:
    """Serves until the process ends. Returns where, by interface, the likeliest address first."""
    _Server.register("registry", callable=lambda: registry)
    server = _Server(("", 0), authkey=key).get_server()
    port = int(server.address[1])  # type: ignore[index]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    likely, known = own_address(), interface_addresses()
    others = {name: there for name, there in known.items() if there != likely}
    last = [name for name, there in others.items() if there.startswith("127.")]
    names = [*(name for name in others if name not in last), *last]
    places = {name: [(others[name], port)] for name in names}
    return {"host": [(likely, port)], **places}


class Client:
    """Calls the registry. The methods of `Registry`, and its errors.

    `address`: of this host, for those who are told it by the registry.
    """

    def __init__(self, addresses: Addresses, key: bytes, verbose: int = 1) -> None:
        self._verbose = verbose
        self._registry, there = _connect(addresses, key)
        self.address = own_address(there)

    def __getattr__(self, name: str) -> Any:
        if self._verbose > 1:
            print(f"compute service: {name}")
        return getattr(self._registry, name)


#: Time for a host to answer; at an address of no use here it may be that nobody does.
_SECONDS_TO_ANSWER = 5


def _connect(addresses: Addresses, key: bytes) -> tuple[Any, str]:
    """The registry, and the address at which it answers."""
    problems = []
    for interface, places in addresses.items():
        for host, port in places:
            manager = _Caller((host, port), authkey=key)
            try:
                socket.create_connection((host, port), _SECONDS_TO_ANSWER).close()
                manager.connect()
                return manager.registry(), host  # type: ignore[attr-defined]
            except (OSError, EOFError, AuthenticationError) as error:
                problems.append(f"{interface} {host}:{port}: {error}")
    raise HorovodInternalError(f"the compute service does not answer: {'; '.join(problems)}")
