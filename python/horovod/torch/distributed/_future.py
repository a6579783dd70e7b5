"""Futures for Python, whose callbacks issue operations that match between ranks."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import torch

_this_thread = threading.local()


class Origin:
    """A callback that issues operations. It runs at once if its future has ended, and later on
    another thread otherwise, so ranks may differ in what is issued before it. Its operations are
    numbered apart from all others. `path`: the same on all ranks, and of this callback alone."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._numbers = itertools.count(1)

    def next_name(self) -> str:
        """Returns the name of the next operation of the callback."""
        return f"{self._path}.{next(self._numbers)}"


@contextmanager
def _issuing(origin: Origin | None) -> Iterator[None]:
    """Makes `origin` that of what this thread issues."""
    outer = current_origin()
    _this_thread.origin = origin
    try:
        yield
    finally:
        _this_thread.origin = outer


def current_origin() -> Origin | None:
    """Returns the callback in which the caller runs, None outside of callbacks."""
    origin: Origin | None = getattr(_this_thread, "origin", None)
    return origin


class Names:
    """The names of the operations of one group: its own name and a number. As a context it gives
    the name of an operation that is submitted meanwhile. What is refused has no number: the other
    ranks may not have called it."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._issued = 0

    def __enter__(self) -> str:
        origin = current_origin()
        return f"{self._group}.{self._issued + 1}" if origin is None else origin.next_name()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None and current_origin() is None:
            self._issued += 1


class Future(torch.futures.Future[Any]):
    """That of an operation, or of a callback of such a future. `path`: the name of the operation,
    the same on all ranks; "" if it has none. Any thread may call."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        self._numbers = itertools.count(1)

    def then(self, callback: Callable[[Any], Any]) -> Any:
        path = self._next_path()
        after, origin = Future(path), Origin(path) if path else None

        def run(_: Any) -> None:
            with _issuing(origin):
                settle(after, lambda: callback(self))

        super().add_done_callback(run)
        return after

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        path = self._next_path()
        origin = Origin(path) if path else None

        def run(_: Any) -> None:
            with _issuing(origin):
                callback(self)

        super().add_done_callback(run)

    def _next_path(self) -> str:
        return self._path and f"{self._path}.{next(self._numbers)}"


def settle(future: torch.futures.Future[Any], call: Callable[[], Any]) -> None:
    """Gives the result or the error of `call` to `future`."""
    try:
        result = call()
    except Exception as error:
        future.set_exception(error)
    else:
        future.set_result(result)
