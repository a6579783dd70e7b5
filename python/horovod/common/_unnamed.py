"""Numbers for operations that the user gave no name: `noname.<n>`.

Such operations pair up by the order of calls, so every rank of a process set must come to the same
numbers. Hence each set counts by itself, since ranks outside it do not make its calls; and a number
whose operation was refused on this rank alone is given back. Any thread may call.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

#: More than a job makes between two joins.
_RANGE = 2**32


class _Numbers:
    """The numbers of one set."""

    def __init__(self) -> None:
        self.fresh: Iterator[int] = itertools.count(_begin)
        self.returned: list[int] = []


_sets: dict[int, _Numbers] = {}
_begin = 0


def submit(process_set_id: int, submit_as: Callable[[str], int]) -> tuple[str, int]:
    """Submits an operation under the next automatic name. Returns the name and the handle."""
    numbers = _sets.get(process_set_id) or _sets.setdefault(process_set_id, _Numbers())
    number = numbers.returned.pop() if numbers.returned else next(numbers.fresh)
    name = f"noname.{number}"
    try:
        return name, submit_as(name)
    except Exception:
        numbers.returned.append(number)
        raise


def forget_set(process_set_id: int) -> None:
    """From now on the id stands for another set, whose ranks have counted differently so far."""
    _sets.pop(process_set_id, None)


def restart() -> None:
    """A new job counts from 0."""
    global _begin
    _sets.clear()
    _begin = 0


def go_on_after_join() -> None:
    """Ranks that joined early have counted less: all go on from a number that none has reached."""
    global _begin
    _sets.clear()
    _begin += _RANGE
