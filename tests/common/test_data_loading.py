"""horovod.data: a thread makes batches ahead, and leaves nothing behind however a pass ends."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from horovod.data import AsyncDataLoaderMixin, BaseDataLoader


class Squares(BaseDataLoader):
    """The squares of 0 to count - 1; fails at `fail_at`. Remembers which thread made them."""

    def __init__(self, count: int, fail_at: int | None = None) -> None:
        self.count = count
        self.fail_at = fail_at
        self.made: list[int] = []
        self.threads: set[threading.Thread] = set()
        self.closed = 0

    def __len__(self) -> int:
        return self.count

    def _iterate(self) -> Iterator[int]:
        self.threads.add(threading.current_thread())
        try:
            for i in range(self.count):
                if i == self.fail_at:
                    raise LookupError(f"no batch {i}")
                self.made.append(i)
                yield i
        finally:
            self.closed += 1

    def _process_batch(self, batch: int) -> tuple[int, threading.Thread]:
        return batch * batch, threading.current_thread()


class AsyncSquares(AsyncDataLoaderMixin, Squares):
    pass


@pytest.fixture(autouse=True)
def no_thread_is_left_behind() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


def values(loader: Squares) -> list[int]:
    return [value for value, _ in loader]


def test_a_loader_yields_processed_batches_in_every_pass() -> None:
    loader = Squares(4)
    assert len(loader) == 4
    assert values(loader) == values(loader) == [0, 1, 4, 9]


@pytest.mark.parametrize("size", [0, 1, 2, 64])
def test_the_batches_are_the_same_whatever_the_queue(size: int) -> None:
    loader = AsyncSquares(size, False, 20)
    for _ in range(3):
        assert values(loader) == [i * i for i in range(20)]
    assert loader.made == 3 * list(range(20))
    assert loader.closed == 3


def test_an_empty_pass_ends() -> None:
    assert values(AsyncSquares(2, count=0)) == []


def test_batches_are_made_in_a_thread_and_processed_in_the_callers() -> None:
    loader = AsyncSquares(2, count=3)
    here = threading.current_thread()
    assert {thread for _, thread in loader} == {here}
    assert here not in loader.threads


def test_with_size_0_there_is_no_thread() -> None:
    loader = AsyncSquares(0, count=3)
    iteration = iter(loader)
    assert next(iteration)[0] == 0
    assert loader.made == [0]
    assert loader.threads == {threading.current_thread()}


def test_the_thread_makes_no_more_than_the_queue_holds() -> None:
    """And one that it holds; it makes these before they are requested."""
    reached = threading.Event()

    class Watched(AsyncSquares):
        def _iterate(self) -> Iterator[int]:
            for batch in super()._iterate():
                if batch == 4:  # one taken, three wait, this is in the hands
                    reached.set()
                assert batch <= 4
                yield batch

    loader = Watched(3, count=100)
    iteration = iter(loader)
    assert next(iteration)[0] == 0
    assert reached.wait(30)
    loader.close_async_loader()
    assert list(iteration) == []
    assert loader.made == list(range(5))


def test_an_error_in_the_thread_comes_after_the_batches_before_it() -> None:
    loader = AsyncSquares(8, count=5, fail_at=3)
    seen = []
    with pytest.raises(LookupError, match="no batch 3"):
        for value, _ in loader:
            seen.append(value)
    assert seen == [0, 1, 4]
    loader.fail_at = None
    assert values(loader) == [0, 1, 4, 9, 16]


def test_even_an_exit_in_the_thread_reaches_the_caller() -> None:
    class Leaving(AsyncSquares):
        def _iterate(self) -> Iterator[int]:
            yield 1
            sys.exit(3)

    with pytest.raises(SystemExit):
        values(Leaving(2, count=1))


def test_an_early_break_ends_the_thread_and_the_generator() -> None:
    loader = AsyncSquares(2, count=1000)
    for value, _ in loader:
        if value == 9:
            break
    assert loader.closed == 1
    assert len(loader.made) < 1000
    assert values(loader)[:3] == [0, 1, 4]


def test_closing_ends_the_pass_for_a_waiting_caller() -> None:
    """From another thread, while the caller waits for a batch that is long in coming."""
    entered, leave = threading.Event(), threading.Event()

    class Slow(AsyncSquares):
        def _iterate(self) -> Iterator[int]:
            yield 0
            entered.set()
            leave.wait(30)
            yield 1

    loader = Slow(1, count=2)

    def close() -> None:
        entered.wait(30)
        closing = threading.Thread(target=loader.close_async_loader)
        closing.start()
        leave.set()
        closing.join()

    other = threading.Thread(target=close)
    other.start()
    assert values(loader)[0] == 0
    other.join()


def test_closing_is_possible_at_any_time() -> None:
    loader = AsyncSquares(2, count=5)
    loader.close_async_loader()
    first, second = iter(loader), iter(loader)
    assert next(first)[0] == next(second)[0] == 0
    loader.close_async_loader()
    loader.close_async_loader()
    assert list(first) == list(second) == []
    assert values(loader) == [0, 1, 4, 9, 16]


def test_debugging_says_how_often_training_waited(capsys: pytest.CaptureFixture[str]) -> None:
    list(AsyncSquares(2, True, count=3))
    assert "AsyncSquares: 3 batches, training waited" in capsys.readouterr().err
    list(AsyncSquares(2, count=3))
    assert capsys.readouterr().err == ""


def test_a_negative_queue_is_refused() -> None:
    with pytest.raises(ValueError, match="-1"):
        AsyncSquares(-1, count=3)


def test_a_loader_must_say_what_it_has() -> None:
    with pytest.raises(NotImplementedError, match="BaseDataLoader"):
        len(BaseDataLoader())
    with pytest.raises(NotImplementedError, match="_iterate"):
        next(iter(BaseDataLoader()))


def test_it_needs_no_framework() -> None:
    script = "import sys, horovod.data; print('torch' in sys.modules, 'numpy' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ended.stdout.split() == ["False", "False"], ended.stderr
