"""Where dispatchers, workers and the training job find each other: one small server.

It runs in a thread beside rank 0 of the compute job. Only processes that know its key may call it:
each call is an authenticated channel of its own (horovod.common._channel), at most `MOST_STRANGERS`
connections are open without a proof, and each of them for seconds.
"""

from __future__ import annotations

import contextlib
import functools
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from horovod.common._channel import Channel, Closed, Message, secret_of
from horovod.common._dial import Patience, dial
from horovod.common._gate import BACKLOG, Gate, run_ready
from horovod.common.exceptions import HorovodInternalError
from horovod.tensorflow.data._address import interface_addresses, own_address

Addresses = Mapping[str, Sequence[tuple[str, int]]]
_PURPOSE = "horovod tf.data registry"
#: For a host to answer; rank 0 may be busy.
_PATIENCE = Patience(connect=5, total=30)
#: An answer has a few hundred bytes, so this is only for a caller that is stopped.
_SEND_SECONDS = 10


@dataclass(frozen=True)
class Wait:
    """An answer that is not there yet."""

    wanted: Callable[[], bool]
    answer: Callable[[], Any]
    what: str
    timeout: float | None  #: in seconds; None: without end


class Registry:
    """What is known. For one thread. A method that cannot answer yet returns a Wait."""

    def __init__(self, dispatchers: int, workers_per_dispatcher: int) -> None:
        self._dispatchers = dispatchers
        self._workers_per_dispatcher = workers_per_dispatcher
        self._addresses: dict[int, str] = {}
        self._workers: dict[int, set[int]] = {}
        self._running = set(range(dispatchers))  #: used for training, now or later

    def _check(self, dispatcher: int) -> None:
        if not 0 <= dispatcher < self._dispatchers:
            raise IndexError(f"there are {self._dispatchers} dispatchers, none is {dispatcher}")

    def greet(self) -> None:
        """Says that the registry is here."""

    def register_dispatcher(self, dispatcher_id: int, dispatcher_address: str) -> None:
        """Says where a dispatcher is. Raises ValueError when it is said to be elsewhere already."""
        self._check(dispatcher_id)
        known = self._addresses.setdefault(dispatcher_id, dispatcher_address)
        if known != dispatcher_address:
            raise ValueError(f"dispatcher {dispatcher_id} is at {known} already")

    def wait_for_dispatcher_registration(self, dispatcher_id: int, timeout: float) -> Wait:
        """Where a dispatcher is, once it is there."""
        self._check(dispatcher_id)
        return Wait(
            lambda: dispatcher_id in self._addresses,
            lambda: self._addresses[dispatcher_id],
            f"dispatcher {dispatcher_id}",
            timeout,
        )

    def register_worker_for_dispatcher(self, dispatcher_id: int, worker_id: int) -> None:
        """Says that a worker of a dispatcher runs."""
        self._check(dispatcher_id)
        self._workers.setdefault(dispatcher_id, set()).add(worker_id)

    def wait_for_dispatcher_worker_registration(self, dispatcher_id: int, timeout: float) -> Wait:
        """Returns once all workers of a dispatcher run."""
        self._check(dispatcher_id)
        return Wait(
            lambda: len(self._workers.get(dispatcher_id, ())) >= self._workers_per_dispatcher,
            lambda: None,
            f"a worker of dispatcher {dispatcher_id}",
            timeout,
        )

    def end_dispatcher(self, dispatcher_id: int) -> None:
        """Marks a dispatcher as unused by training; after the last one the compute job ends."""
        self._check(dispatcher_id)
        self._running.discard(dispatcher_id)

    def shutdown(self) -> None:
        """The compute job may end."""
        self._running.clear()

    def wait_for_dispatcher_end(self, dispatcher_id: int) -> Wait:
        """Returns when no process trains from a dispatcher any more."""
        self._check(dispatcher_id)
        return Wait(
            lambda: dispatcher_id not in self._running,
            lambda: None,
            "the end of training",
            None,
        )

    def wait_for_shutdown(self, timeout: float | None = None) -> Wait:
        """Returns when the compute job may end."""
        return Wait(lambda: not self._running, lambda: None, "the end of training", timeout)


#: What a caller may ask for: the methods of the Registry.
_CALLS = frozenset(name for name in vars(Registry) if not name.startswith("_"))
#: What they raise; a caller gets the same.
_ERRORS = {error.__name__: error for error in (IndexError, TimeoutError, TypeError, ValueError)}


class Server:
    """Answers calls. For one thread."""

    def __init__(self, registry: Registry, key: bytes, host: str) -> None:
        """Listens at `host`; "": at all interfaces."""
        self._registry = registry
        self._selector = selectors.DefaultSelector()
        self._waiting: dict[Channel, tuple[Wait, float | None]] = {}  # until when
        listener = socket.create_server((host, 0), backlog=BACKLOG)
        self.port: int = listener.getsockname()[1]
        secret = secret_of(key, _PURPOSE)
        self._gate = Gate(listener, secret, self._selector, self._admit, _SEND_SECONDS)
        self._bell, self._ringer = socket.socketpair()
        self._selector.register(self._bell, selectors.EVENT_READ, self._hear_bell)
        self._is_over = False

    def turn(self) -> None:
        """Waits for the next event, then answers the calls that it completes."""
        times = [until for _, until in self._waiting.values() if until is not None]
        left = max(0.0, min(times) - time.monotonic()) if times else None
        run_ready(self._selector, self._gate.tend(), left)
        now = time.monotonic()
        for channel, (wait, until) in [*self._waiting.items()]:
            if wait.wanted():
                self._end(channel, ("returned", wait.answer()))
            elif until is not None and now >= until:
                text = f"{wait.what} has not come within {wait.timeout} s"
                self._end(channel, ("raised", TimeoutError.__name__, text))

    def serve(self) -> None:
        """Answers until `end` is called, then closes."""
        try:
            while not self._is_over:
                self.turn()
        finally:
            self.close()

    def end(self) -> None:
        """Any thread may call: `serve` returns after its turn."""
        self._ringer.send(b"!")

    def _hear_bell(self) -> None:
        self._is_over = True

    def close(self) -> None:
        for channel in self._waiting:
            channel.close()
        self._waiting.clear()
        self._gate.close()
        self._selector.close()
        self._bell.close()
        self._ringer.close()

    def _admit(self, channel: Channel, messages: list[Message]) -> None:
        """The first message of a channel is the call."""
        try:
            channel.send(("welcome",))
            what, name, arguments, named = messages[0]
            if what != "call" or name not in _CALLS:
                raise ValueError(f"the compute service has no {name}")
            self._answer_or_wait(channel, getattr(self._registry, name)(*arguments, **named))
        except Closed:
            channel.close()
        except tuple(_ERRORS.values()) as error:
            _answer(channel, ("raised", type(error).__name__, str(error)))

    def _answer_or_wait(self, channel: Channel, answer: Any) -> None:
        if not isinstance(answer, Wait):
            _answer(channel, ("returned", answer))
            return
        until = None if answer.timeout is None else time.monotonic() + answer.timeout
        self._waiting[channel] = (answer, until)
        self._selector.register(
            channel, selectors.EVENT_READ, functools.partial(self._hear, channel)
        )

    def _hear(self, channel: Channel) -> None:
        """One that waits has nothing to say: it has gone."""
        del self._waiting[channel]
        self._selector.unregister(channel)
        channel.close()

    def _end(self, channel: Channel, message: Message) -> None:
        del self._waiting[channel]
        self._selector.unregister(channel)
        _answer(channel, message)


def _answer(channel: Channel, message: Message) -> None:
    try:
        channel.send(message)
    except Closed:  # who asked has gone
        pass
    finally:
        channel.close()


@contextlib.contextmanager
def serving(registry: Registry, key: bytes) -> Iterator[Addresses]:
    """Serves within the context. Gives where, by interface, the likeliest address first; only the
    address of HOROVOD_GLOO_IFACE where that is set."""
    likely = own_address()
    chosen = bool(os.environ.get("HOROVOD_GLOO_IFACE", ""))
    server = Server(registry, key, likely if chosen else "")
    others = {} if chosen else interface_addresses()
    others = {name: there for name, there in others.items() if there != likely}
    last = [name for name, there in others.items() if there.startswith("127.")]
    names = [*(name for name in others if name not in last), *last]
    places = {name: [(others[name], server.port)] for name in names}
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    try:
        yield {"host": [(likely, server.port)], **places}
    finally:
        server.end()
        thread.join()


class ComputeServiceLostError(HorovodInternalError):
    """`has_ended`: no process listens at the address of the compute service any more."""

    def __init__(self, text: str, has_ended: bool) -> None:
        super().__init__(text)
        self.has_ended = has_ended


#: Calls that let the compute job end. They succeed if it has ended already.
_ENDS = frozenset(("end_dispatcher", "shutdown"))


class Client:
    """Calls the registry. The methods of `Registry`, and its errors; HorovodInternalError when it
    does not answer, but for `shutdown` and `end_dispatcher` when it has ended. Any thread may call.
    """

    def __init__(self, addresses: Addresses, key: bytes, verbose: int = 1) -> None:
        self._addresses = addresses
        self._verbose = verbose
        self._secret = secret_of(key, _PURPOSE)

    def __getattr__(self, name: str) -> Any:
        if name not in _CALLS:
            raise AttributeError(name)
        if self._verbose > 1:
            print(f"compute service: {name}")
        return functools.partial(self._call, name)

    @functools.cached_property
    def address(self) -> str:
        """Returns the address of this host, for processes that get it from the registry."""
        return own_address(self._place[0])

    @functools.cached_property
    def _place(self) -> tuple[str, int]:
        """The first place at which the registry answers."""
        problems = []
        has_ended = False
        for interface, places in self._addresses.items():
            for host, port in places:
                try:
                    self._ask((host, port), ("call", "greet", (), {}))
                    return host, port
                except OSError as error:
                    problems.append(f"{interface} {host}:{port}: {error}")
                    has_ended = has_ended or isinstance(error, ConnectionRefusedError)
        text = f"the compute service does not answer: {'; '.join(problems)}"
        raise ComputeServiceLostError(text, has_ended)

    def _call(self, name: str, *arguments: Any, **named: Any) -> Any:
        try:
            what, *answer = self._answer(name, ("call", name, arguments, named))
        except ComputeServiceLostError as error:
            if error.has_ended and name in _ENDS:
                return None
            raise
        if what == "raised":
            kind, text = answer
            raise _ERRORS[kind](text)
        return answer[0]

    def _answer(self, name: str, call: Message) -> Message:
        host, port = self._place
        try:
            return self._ask((host, port), call)
        except OSError as error:
            text = f"{name}: the compute service at {host}:{port} does not answer: {error}"
            raise ComputeServiceLostError(
                text, isinstance(error, ConnectionRefusedError)
            ) from error

    def _ask(self, place: tuple[str, int], call: Message) -> Message:
        """Once the call is there, its answer may take any time."""
        channel = dial(*place, self._secret, call, _PATIENCE)
        try:
            return channel.receive()
        finally:
            channel.close()
