"""The numbers of unnamed operations: used by several threads, and begun again."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

from horovod.common import _unnamed


@pytest.fixture(autouse=True)
def fresh_numbers() -> Iterator[None]:
    _unnamed.restart()
    yield
    _unnamed.restart()


def accept(_name: str) -> int:
    return 1


def refuse(_name: str) -> int:
    raise ValueError("refused")


def name_of_next(process_set: int = 0) -> str:
    return _unnamed.submit(process_set, accept)[0]


def test_a_number_whose_operation_was_refused_is_used_by_the_next() -> None:
    assert name_of_next() == "noname.0"
    with pytest.raises(ValueError, match="refused"):
        _unnamed.submit(0, refuse)
    assert [name_of_next(), name_of_next()] == ["noname.1", "noname.2"]


class TakenByAnother(list[int]):
    """A list that another thread empties after one has seen that something is in it."""

    def __bool__(self) -> bool:
        self.clear()
        return True

    def __len__(self) -> int:
        return 1


def test_a_returned_number_that_another_thread_takes_first_is_no_error() -> None:
    assert name_of_next() == "noname.0"
    numbers = _unnamed._counts.of(0)
    numbers._returned = TakenByAnother([0])
    assert name_of_next() == "noname.1"


def test_threads_never_get_the_same_number_at_a_time() -> None:
    in_use: set[str] = set()
    problems: list[str] = []

    def submit(name: str) -> int:
        if name in in_use:
            problems.append(name)
        in_use.add(name)
        in_use.discard(name)
        raise ValueError

    def submit_often() -> None:
        for _ in range(3000):
            try:
                _unnamed.submit(0, submit)
            except ValueError:
                pass
            except IndexError:
                problems.append("IndexError")

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=submit_often) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert problems == []


def test_after_a_join_every_set_goes_on_from_a_number_that_none_has_reached() -> None:
    name_of_next(0)
    _unnamed.go_on_after_join()
    assert name_of_next(0) == name_of_next(3) == f"noname.{2**32}"
    _unnamed.restart()
    assert name_of_next(0) == name_of_next(3) == "noname.0"
