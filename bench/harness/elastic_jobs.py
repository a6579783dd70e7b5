"""An elastic job that a bench watches, whose ranks note their commits.

They run `programs/elastic_training.py`.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from harness import jobs
from harness.jobs import Launch, end

POLL_S = 0.005


@dataclass(frozen=True)
class Commit:
    at: float  #: seconds of the monotonic clock
    generation: int
    rank: int
    size: int


Commits = dict[int, list[Commit]]  #: by process


def commits_in(folder: Path) -> Commits:
    """Of the processes that have committed."""
    found: Commits = {}
    for file in folder.glob("*.commits"):
        *lines, _ = file.read_text().split("\n")  # the last one may be half-written
        numbers = [[int(word) for word in line.split()] for line in lines]
        if numbers:
            found[int(file.stem)] = [Commit(at / 1e9, *rest) for at, *rest in numbers]
    return found


def born(pid: int) -> float:
    """Returns when a process was started, by the monotonic clock, to 10 ms."""
    words = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    since_boot = int(words[19]) / os.sysconf("SC_CLK_TCK")
    return since_boot + time.monotonic() - time.clock_gettime(time.CLOCK_BOOTTIME)


class Job:
    """An elastic job whose ranks note their commits in `folder`."""

    def __init__(self, launch: Launch, folder: Path) -> None:
        self.folder = folder
        with (folder / "output").open("wb") as output:
            self.process = jobs.started(launch, output, output)

    def await_commits(self, count: int, size: int, generation: int, limit_s: float) -> Commits:
        """Waits until `size` processes have `count` commits each as ranks of a job of that size, in
        `generation` or later."""
        deadline = time.monotonic() + limit_s
        while True:
            found = commits_in(self.folder)
            of_size = [
                pid
                for pid, noted in found.items()
                if sum(c.size == size and c.generation >= generation for c in noted) >= count
            ]
            if len(of_size) == size:
                return found
            if time.monotonic() > deadline or self.process.poll() is not None:
                said = (self.folder / "output").read_text()
                where = f"generation {generation} or later"
                raise SystemExit(f"no {size} ranks with {count} commits in {where}: {said}")
            time.sleep(POLL_S)


@contextlib.contextmanager
def started(launch: Launch, folder: Path) -> Iterator[Job]:
    job = Job(launch, folder)
    try:
        yield job
    finally:
        end(job.process)


def made_elastic(launch: Launch, np: int) -> Launch:
    begin = launch.command.index("-np")
    elastic = ["--min-np", str(np // 2)]
    command = [*launch.command[:begin], *elastic, *launch.command[begin:]]
    return replace(launch, command=command)
