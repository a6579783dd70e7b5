"""Ranks that commit, as threads of this process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from horovod.common import _elastic_commits
from horovod.common._departure import Departure
from horovod.common._elastic_commits import Commits, StateFolder
from horovod.common._state_files import commits
from horovod.common.elastic import ObjectState
from horovod.common.exceptions import HostsUpdatedInterrupt

EACH_COMMIT = 1e-6  # s


class Ranks:
    """Runs a function on `size` ranks at the same time."""

    def __init__(self, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.size = size
        self.here = threading.local()
        self.barrier = threading.Barrier(size, timeout=60)
        self.values: list[Any] = [None] * size
        core = SimpleNamespace(world=lambda: SimpleNamespace(rank=self.here.rank, size=size))
        monkeypatch.setattr(_elastic_commits, "core", core)

    def largest(self, own: Any) -> Any:
        self.values[self.here.rank] = own
        self.barrier.wait()
        every = list(self.values)
        self.barrier.wait()
        return type(own)(*map(max, zip(*every, strict=True)))

    def run(self, function: Callable[[int], Any]) -> list[Any]:
        """What it returned or raised on each rank."""
        found: list[Any] = [None] * self.size

        def one(rank: int) -> None:
            self.here.rank = rank
            try:
                found[rank] = function(rank)
            except BaseException as error:
                found[rank] = error
                if not isinstance(error, (SystemExit, HostsUpdatedInterrupt)):
                    self.barrier.abort()

        threads = [threading.Thread(target=one, args=(rank,)) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for result in found:
            if isinstance(result, Exception) and not isinstance(result, HostsUpdatedInterrupt):
                raise result
        return found


class Rank:
    def __init__(self, ranks: Ranks, folder: StateFolder | None, is_elastic: bool = False) -> None:
        self.state: Any = ObjectState(lambda obj: obj, lambda: 0, step=0)
        self.departure = Departure()
        self.commits = Commits(self.state, folder, self.departure, is_elastic, ranks.largest)
        self.state.after_save(self.commits.after_save)

    def train(self, steps: int) -> int:
        for _ in range(steps):
            self.state.step += 1
            self.state.commit()
        return int(self.state.step)


def numbers(folder: Path) -> list[int]:
    return [commit.number for commit in commits(folder)]


def loaded_step(folder: Path) -> int:
    state: Any = ObjectState(lambda obj: obj, lambda: 0, step=0)
    assert Commits(state, StateFolder(folder, 0), Departure(), True).load()
    return int(state.step)
