"""Numbers for operations without a name: `noname.<n>`.

Such operations are matched by the order of calls, so every rank of a process set must count alike.
Each set has its own counter, since ranks outside it do not make its calls. A number whose operation
was refused on this rank only is returned. Any thread may call, and a process may be forked at any
time: there is no lock.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: More than a job makes between two joins.
_RANGE = 2**32


class _Numbers:
    """The numbers of one set, from `begin`."""

    def __init__(self, begin: int) -> None:
        self._fresh = itertools.count(begin)
        self._returned: list[int] = []

    def take(self) -> int:
        if self._returned:
            try:
                return self._returned.pop()
            except IndexError:  # another thread was quicker
                pass
        return next(self._fresh)

    def give_back(self, number: int) -> None:
        self._returned.append(number)


class _Counts:
    """The numbers of every set by its id, all from `begin`. Replaced as a whole."""

    def __init__(self, begin: int) -> None:
        self.begin = begin
        self._numbers: dict[int, _Numbers] = {}

    def of(self, process_set: int) -> _Numbers:
        found = self._numbers.get(process_set)
        return found or self._numbers.setdefault(process_set, _Numbers(self.begin))


_counts = _Counts(0)


def submit(process_set: int, submit_as: Callable[[str], T]) -> tuple[str, T]:
    """Submits an operation under the next automatic name. Returns the name and the handle."""
    numbers = _counts.of(process_set)
    number = numbers.take()
    name = f"noname.{number}"
    try:
        return name, submit_as(name)
    except Exception:
        numbers.give_back(number)
        raise


def restart() -> None:
    """Counts from 0 again. Called when a job begins or ends, in every framework."""
    global _counts
    _counts = _Counts(0)


def go_on_after_join() -> None:
    """Continues with a number that no rank has reached: ranks that joined early have counted
    less."""
    global _counts
    _counts = _Counts(_counts.begin + _RANGE)
