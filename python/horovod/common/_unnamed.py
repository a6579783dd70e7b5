"""Numbers for operations that the user gave no name: `noname.<n>`.

Such operations pair up by the order of calls, so every rank of a process set must come to the same
numbers. Hence each set counts by itself, since ranks outside it do not make its calls; and a number
whose operation was refused on this rank alone is given back. Any thread may call, and a process may
be forked at any time: there is no lock.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

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
        self._sets: dict[int, _Numbers] = {}

    def of(self, process_set_id: int) -> _Numbers:
        found = self._sets.get(process_set_id)
        return found or self._sets.setdefault(process_set_id, _Numbers(self.begin))


_counts = _Counts(0)


def submit(process_set_id: int, submit_as: Callable[[str], int]) -> tuple[str, int]:
    """Submits an operation under the next automatic name. Returns the name and the handle."""
    numbers = _counts.of(process_set_id)
    number = numbers.take()
    name = f"noname.{number}"
    try:
        return name, submit_as(name)
    except Exception:
        numbers.give_back(number)
        raise


def restart() -> None:
    """A new job counts from 0. Called where a job begins and ends, whatever the framework."""
    global _counts
    _counts = _Counts(0)


def go_on_after_join() -> None:
    """Ranks that joined early have counted less: all go on from a number that none has reached."""
    global _counts
    _counts = _Counts(_counts.begin + _RANGE)
