"""Operations under way, as torch.distributed sees them."""

from __future__ import annotations

import contextlib
import inspect
import queue
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Protocol

import torch

from horovod.torch.distributed._deadline import Deadline
from horovod.torch.distributed._errors import DistributedError, as_of_torch
from horovod.torch.distributed._future import Future, settle

#: Between two looks at an operation: the first, and the longest.
_FIRST_PAUSE_SECONDS = 0.0001
_LONGEST_PAUSE_SECONDS = 0.002

#: Tensors, or lists of them.
Outputs = Sequence[Any]


class Pending(Protocol):
    """An operation that has been submitted. Any thread may call any method. `name`: the same on all
    ranks; "" if operations are not matched by names."""

    name: str

    def wait(self) -> None:
        """Blocks until the operation has ended and its results are in the caller's tensors. Raises
        its error, at each call."""

    def is_over(self) -> bool:
        """Returns whether the operation has ended, successfully or not. Does not block."""


class Ending:
    """The end of an operation that another thread completes."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self._ended = threading.Event()
        self._error: BaseException | None = None

    def end(self, error: BaseException | None = None) -> None:
        """Called once, by that thread."""
        self._error = error
        self._ended.set()

    def wait(self) -> None:
        self._ended.wait()
        if self._error is not None:
            raise self._error

    def is_over(self) -> bool:
        return self._ended.is_set()


class Queued(Ending):
    """A call that another thread makes."""

    def __init__(self, call: Callable[[], object], name: str) -> None:
        super().__init__(name)
        self._call: Callable[[], object] | None = call

    def run(self) -> None:
        call, self._call = self._call, None
        assert call is not None
        try:
            call()
        except BaseException as error:  # the caller's, who waits for it
            self.end(error)
        else:
            self.end()


class Attendant:
    """A thread that calls functions in the order in which they were given. It starts with the first
    function and ends at `close`. One thread at a time may use it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._given = 0
        self._done = 0

    def call(self, function: Callable[[], None]) -> None:
        """Queues `function`, which must not raise."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, args=(self._calls,), name=self._name, daemon=True
            )
            self._thread.start()
        self._given += 1
        self._calls.put(function)

    def has_started(self) -> bool:
        return self._thread is not None

    def is_idle(self) -> bool:
        """Returns whether all functions have returned."""
        return self._done == self._given

    def is_current(self) -> bool:
        """Returns whether the caller is a function that this thread has called."""
        return threading.current_thread() is self._thread

    def start(self, function: Callable[[], object], name: str = "") -> Queued:
        """Queues `function`, which may raise."""
        queued = Queued(function, name)
        self.call(queued.run)
        return queued

    def close(self) -> None:
        """Ends the thread after the functions that are queued. Does not wait for it."""
        if self._thread is not None:
            self._calls.put(None)
            self._calls, self._thread = queue.SimpleQueue(), None

    def _run(self, calls: queue.SimpleQueue[Callable[[], None] | None]) -> None:
        while (function := calls.get()) is not None:
            function()
            self._done += 1


_Base: Any = torch.distributed.Work


class Work(_Base):  # type: ignore[misc]
    """One call of a collective. `attendant`: waits for it if a future is asked for; None: a thread
    of its own does.

    All ranks of a group make the same calls in the same order. So one thread per group can wait for
    the futures in that order: if an operation has ended, the earlier ones of its group do, too.
    """

    def __init__(self, pending: Pending, outputs: Outputs, attendant: Attendant | None) -> None:
        super().__init__()
        self._pending = pending
        self._outputs = outputs
        self._attendant = attendant
        self._future: Future | None = None
        self._native_future: torch.futures.Future[Any] | None = None
        self._error: BaseException | None = None

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Blocks until the results are in the tensors of the call. Raises its error, and
        DistributedError after `timeout` (None or 0: none). The operation then goes on."""
        if timeout:
            self._await_end(timeout)
        try:
            with as_of_torch():
                self._pending.wait()
        except (RuntimeError, ValueError) as error:
            self._error = error
            raise
        return True

    def _await_end(self, timeout: timedelta) -> None:
        deadline = Deadline(timeout.total_seconds())
        pause = _FIRST_PAUSE_SECONDS
        while not self._pending.is_over():
            if deadline.is_over():
                raise DistributedError(
                    f'"{self._pending.name}" has not ended after {timeout.total_seconds():g} s; it '
                    "goes on, and its tensors must not be used before another wait()"
                )
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        return self._pending.is_over()

    def is_success(self) -> bool:
        return self.is_completed() and self.exception() is None

    def exception(self) -> BaseException | None:
        if self._error is None and self.is_completed():
            try:
                self.wait()
            except (RuntimeError, ValueError) as error:
                return error
        return self._error

    def result(self) -> Outputs:
        self.wait()
        return self._outputs

    def get_future(self) -> torch.futures.Future[Any]:
        """Returns a future of the list of outputs. C++ code of torch waits for it without Python,
        and gets errors as RuntimeError with their text."""
        caller = inspect.currentframe().f_back  # type: ignore[union-attr]
        if caller is None or "get_future" not in caller.f_code.co_names:
            return self._future_for_cpp()
        if self._future is None:
            future = self._future = Future(self._pending.name)
            self._attend(lambda: settle(future, self.result))
        return self._future

    def _future_for_cpp(self) -> torch.futures.Future[Any]:
        """Only an error that a callback raises becomes one in C++."""
        if self._native_future is None:
            ended: torch.futures.Future[None] = torch.futures.Future()
            self._native_future = ended.then(lambda _: self.result())

            def end() -> None:
                with contextlib.suppress(Exception):  # result() raises it again
                    self.wait()
                ended.set_result(None)

            self._attend(end)
        return self._native_future

    def _attend(self, end: Callable[[], None]) -> None:
        if self._attendant is None:
            threading.Thread(target=end, name="horovod-future", daemon=True).start()
        elif self._attendant.is_current():  # in a callback of an earlier future
            end()
        else:
            self._attendant.call(end)


class All:
    """Several operations of one call, and what is to be done when they have ended."""

    def __init__(self, parts: Sequence[Pending], finish: Callable[[], None] | None = None) -> None:
        """`finish`: copies results to the caller's tensors; called until it succeeds."""
        self.name = parts[0].name if parts else ""
        self._parts = parts
        self._finish = finish
        self._lock = threading.Lock()

    def wait(self) -> None:
        for part in self._parts:
            part.wait()
        with self._lock:
            if self._finish is not None:
                self._finish()
                self._finish = None

    def is_over(self) -> bool:
        if not all(part.is_over() for part in self._parts):
            return False
        with contextlib.suppress(RuntimeError, ValueError):  # of the operation; wait() raises it
            self.wait()
        return True
