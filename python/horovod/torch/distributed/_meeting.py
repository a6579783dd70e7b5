"""Waiting for other ranks by way of the store of torch, before something blocks that cannot tell
who is missing."""

from __future__ import annotations

import contextlib
import inspect
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from horovod.common._extension import core
from horovod.common.exceptions import HorovodMismatchError
from horovod.torch.distributed._deadline import Deadline
from horovod.torch.distributed._errors import DistributedError, as_of_torch

#: Between two looks: the first, and the longest.
_FIRST_PAUSE_SECONDS = 0.0005
_LONGEST_PAUSE_SECONDS = 0.05
#: After an error of the store: how long to wait for the runtime to name the lost rank.
_LOSS_SECONDS = 1.0

_HELD = b"held"


class Meetings:
    """Those of the ranks of one group. Any thread may call."""

    def __init__(
        self, store: Any, rank: int, ranks: list[int], timeout: timedelta, life: str
    ) -> None:
        """`store`: that of the group, which may have the keys of earlier groups. `rank`, `ranks`:
        of this process and of the group, global. `timeout`: of a meeting, if it has no other one.
        It may be changed. `life`: the same on these ranks, and new for each group."""
        self.rank = rank
        self.ranks = ranks
        self._store = store
        self.timeout = timeout
        self._life = life
        self._compared = 0  # the number of the latest comparison

    def seconds(self) -> float:
        """Returns the timeout."""
        return self.timeout.total_seconds()

    def meet(
        self,
        key: str,
        doing: str,
        ranks: Sequence[int] | None = None,
        timeout: timedelta | None = None,
    ) -> None:
        """Blocks until `ranks` (None: all of the group) have called it with this `key`, which is
        used once. The store is not blocked meanwhile: other threads may use it.

        Raises: DistributedError that names the missing ranks, after `timeout`, also on those of
        them that come later; one that names the lost rank, if the job ends.
        """
        limit = self.timeout if timeout is None else timeout
        with self._errors_of_store(doing):
            self._meet(self._place(key), doing, list(self.ranks if ranks is None else ranks), limit)

    def compare(self, call: str) -> None:
        """As `meet` of all ranks, which compare their calls in the same order. Raises
        HorovodMismatchError, on all ranks, if they describe this `call` differently."""
        last, self._compared = self._compared, self._compared + 1
        place = self._place(f"call/{self._compared}")
        with self._errors_of_store(call):
            self._store.set(f"{place}/told/{self.rank}", call.encode())
            self._meet(place, call, list(self.ranks), self.timeout)
            calls = [self._store.get(f"{place}/told/{rank}").decode() for rank in self.ranks]
            self._forget(self._place(f"call/{last}"))  # all have left it
        for rank, other in zip(self.ranks, calls, strict=True):
            if other != calls[0]:
                raise HorovodMismatchError(
                    f"ranks of a group of {len(calls)} call different operations: rank "
                    f"{self.ranks[0]} {calls[0]}, rank {rank} {other}; all ranks of a group must "
                    "make the same calls in the same order"
                )

    def _forget(self, place: str) -> None:
        own = [f"told/{self.rank}", str(self.rank)]
        common = ["outcome", "decided"] if self.rank == self.ranks[0] else []
        for key in [*own, *common]:
            self._store.delete_key(f"{place}/{key}")

    def _place(self, key: str) -> str:
        return f"horovod/{self._life}/{key}"

    @contextlib.contextmanager
    def _errors_of_store(self, doing: str) -> Iterator[None]:
        try:
            yield
        except DistributedError:
            raise
        except RuntimeError as error:
            self._check_job(_LOSS_SECONDS)
            raise DistributedError(
                f"rank {self.rank}: {doing}: the store of torch.distributed failed: {error}; look "
                "at the process that serves it, which is rank 0 or torchrun"
            ) from error

    def _meet(self, place: str, doing: str, missing: list[int], limit: timedelta) -> None:
        self._store.add(f"{place}/{self.rank}", 1)
        deadline = Deadline(limit.total_seconds())
        pause = _FIRST_PAUSE_SECONDS
        while missing:
            if self._has_come(place, missing[0]):
                missing = missing[1:]
                continue
            if deadline.is_over() or has_flag(self._store, f"{place}/decided"):
                missing = [rank for rank in missing if not self._has_come(place, rank)]
                break
            if pause >= _LONGEST_PAUSE_SECONDS:
                self._check_job()
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        self._agree(place, doing, missing, limit)

    def _agree(self, place: str, doing: str, missing: list[int], limit: timedelta) -> None:
        """The first rank to be done decides for all of them: the others may see more or fewer."""
        mine = _HELD
        if missing:
            mine = missing_text(missing, limit.total_seconds()).encode()
        outcome = self._store.compare_set(f"{place}/outcome", "", mine.decode())
        self._store.add(f"{place}/decided", 1)
        if outcome == _HELD:
            return
        other = "" if outcome == mine else "another rank has given up: "
        raise DistributedError(f"rank {self.rank}: {doing}: {other}{outcome.decode()}")

    def _check_job(self, seconds: float = 0.0) -> None:
        """Raises the error with which the job has ended, or ends within `seconds`."""
        deadline = Deadline(seconds)
        while True:
            with as_of_torch():
                core.Group([self.rank])  # cannot be created once the job has ended
            if deadline.is_over():
                return
            time.sleep(_LONGEST_PAUSE_SECONDS)

    def _has_come(self, place: str, rank: int) -> bool:
        return has_flag(self._store, f"{place}/{rank}")


def has_flag(store: Any, key: str) -> bool:
    """Returns whether a rank has added 1 to `key`. Does not block."""
    if hasattr(store, "check"):
        return bool(store.check([key]))
    return bool(store.add(key, 0))  # torch 2.1 cannot ask otherwise


def timeout_being_set() -> timedelta | None:
    """Returns the timeout that `_set_pg_timeout` of torch is called with, None if the caller of the
    caller is another function. torch gives it only to the backends that it knows, and warns."""
    frame = inspect.currentframe()
    for _ in range(2):
        frame = frame.f_back if frame is not None else None
    if frame is None or frame.f_code.co_name != "_set_pg_timeout":
        return None
    timeout: timedelta = frame.f_locals["timeout"]
    return timeout


def ranks_have(ranks: Sequence[int]) -> str:
    is_one = len(ranks) == 1
    return f"rank {ranks[0]} has" if is_one else f"ranks {', '.join(map(str, ranks))} have"


def missing_text(ranks: Sequence[int], seconds: float) -> str:
    """Returns what is said of ranks that others have waited for."""
    waits = "it is" if len(ranks) == 1 else "they are"
    return (
        f"{ranks_have(ranks)} not called it after {seconds:g} s; look at what {waits} waiting "
        "for, or pass a longer timeout"
    )
