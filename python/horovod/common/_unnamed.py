"""Numbers for operations that the user gave no name: `noname.<n>`.

Such operations pair up by the order of calls, so every rank of a process set must come to the same
numbers. Hence each set counts by itself: ranks outside it do not make its calls.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

#: More than a job makes between two joins.
_RANGE = 2**32

_counts: dict[int, Iterator[int]] = {}
_begin = 0


def automatic_name(process_set_id: int) -> str:
    """The name of the next operation without one."""
    if process_set_id not in _counts:
        _counts[process_set_id] = itertools.count(_begin)
    return f"noname.{next(_counts[process_set_id])}"


def forget_set(process_set_id: int) -> None:
    """From now on the id stands for another set, whose ranks have counted differently so far."""
    _counts.pop(process_set_id, None)


def restart() -> None:
    """A new job counts from 0."""
    global _begin
    _counts.clear()
    _begin = 0


def go_on_after_join() -> None:
    """Ranks that joined early have counted less: all go on from a number that none has reached."""
    global _begin
    _counts.clear()
    _begin += _RANGE
