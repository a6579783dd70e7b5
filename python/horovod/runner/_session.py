"""The notebook's side of ranks that run cells: starts them, sends them cells, collects their
output, forwards interrupts. Independent of IPython."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from horovod.runner import launch
from horovod.runner._blocks import Block
from horovod.runner._cells import END_MARK
from horovod.runner._job import Job, Stream

#: Time from an interrupt until operations that wait for other ranks are ended too.
RELEASE_SECONDS = 2.0
#: Time from the request to stop until the ranks get a signal.
_STOP_SECONDS = 5.0
_RANK_LINE = re.compile(r"(?:.*?)\[(\d+)\]<(stdout|stderr)>:(.*)", re.DOTALL)
_RECENT_LINES = 50


class JobLost(RuntimeError):
    """The ranks of the notebook have ended."""


@dataclass
class Cell:
    """The state of one cell on some ranks."""

    number: int
    blocks: dict[int, Block]
    recent: deque[tuple[int, str]] = field(default_factory=lambda: deque(maxlen=_RECENT_LINES))
    open_streams: set[tuple[int, str]] = field(default_factory=set)
    interrupted_at: float | None = None
    given_up: bool = False  #: interrupted twice
    released: bool = False

    def running(self) -> list[int]:
        return [rank for rank, block in self.blocks.items() if block.seconds is None]

    def is_over(self) -> bool:
        return not self.running() and not self.open_streams


class Session:
    """Ranks that run cells. Output that they write between cells is shown with the next cell."""

    def __init__(self, flags: Sequence[str]) -> None:
        """Starts the ranks and waits until all are connected. Raises: ValueError for flags that
        horovodrun does not have; JobLost if the ranks could not be started."""
        options = _checked(flags)
        self.flags = list(flags)
        self.size: int = options.num_proc
        self.hosts: dict[int, tuple[int, str]] = {}  #: process id and host, by rank
        self.cells = 0
        self._lines: dict[Stream, str] = {"stdout": "", "stderr": ""}
        self._early: list[tuple[int, str, str]] = []
        self._cell: Cell | None = None
        elsewhere = bool(options.hosts or options.hostfile)
        command = [sys.executable, "-m", "horovod.runner._worker"]
        own_launcher = [] if options.use_gloo else ["--gloo"]  # overrides the environment
        self._job = Job(
            [*own_launcher, *flags],
            command,
            self._take,
            other_hosts=elsewhere,
            environment=_environment(),
        )
        try:
            while len(self.hosts) < self.size:
                for rank, (what, *rest) in self._job.turn():
                    if what == "hello":
                        self.hosts[rank] = (rest[0], rest[1])
                        self._job.send(rank, ("cells", sys.path))
                if self._job.has_ended():
                    raise self._lost()
        except BaseException:
            self._job.end()
            raise

    def look(self) -> bool:
        """Handles the events since the last call. Returns whether the ranks are still running."""
        if not self._job.has_ended():
            self._job.turn(0)
        return not self._job.has_ended()

    def run(
        self, source: str, ranks: Sequence[int], show: Callable[[Cell], None], every: float
    ) -> Cell:
        """Runs a cell to its end. Calls `show` at most once per `every` seconds.

        Raises: JobLost if a rank is lost. After an interrupt, `interrupted_at` of the cell is set;
        a second interrupt ends the job and raises KeyboardInterrupt.
        """
        self.cells += 1
        cell = Cell(self.cells, {rank: Block(rank) for rank in ranks})
        cell.open_streams = {(rank, name) for rank in ranks for name in ("stdout", "stderr")}
        self._cell = cell
        early, self._early = self._early, []
        for rank, stream, line in early:
            self._add(rank, stream, line)
        with _interrupts() as interrupts:
            self._job.watch(interrupts, lambda: self._interrupt(cell, interrupts))
            try:
                for rank in ranks:
                    self._job.send(rank, ("cell", cell.number, source))
                self._follow(cell, show, every)
            finally:
                self._job.unwatch(interrupts)
                self._cell = None
        return cell

    def _follow(self, cell: Cell, show: Callable[[Cell], None], every: float) -> None:
        shown = time.monotonic()
        while not cell.is_over():
            for rank, (what, *rest) in self._job.turn(every):
                if what == "done" and rest[0] == cell.number:
                    block = cell.blocks[rank]
                    _, block.seconds, block.value, block.error = rest
            if self._job.has_ended():
                for rank in cell.running():
                    cell.blocks[rank].error = ("the rank has ended", "the rank has ended\n")
                show(cell)
                raise self._lost()
            if cell.given_up:
                self._job.end()
                raise KeyboardInterrupt("interrupted twice: the ranks were ended")
            self._release_in_time(cell)
            if time.monotonic() - shown >= every:
                show(cell)
                shown = time.monotonic()

    def _interrupt(self, cell: Cell, interrupts: socket.socket) -> None:
        interrupts.recv(64)
        cell.given_up = cell.interrupted_at is not None
        cell.interrupted_at = time.monotonic()
        for rank in cell.running():
            self._job.send(rank, ("interrupt", cell.number))

    def _release_in_time(self, cell: Cell) -> None:
        if cell.released or cell.interrupted_at is None:
            return
        if time.monotonic() - cell.interrupted_at >= RELEASE_SECONDS:
            cell.released = True
            for rank in cell.running():
                self._job.send(rank, ("release", cell.number))

    def stop(self) -> None:
        """Asks the ranks to end as at the end of a script. Ranks that do not end get a signal."""
        until = time.monotonic() + _STOP_SECONDS
        for rank in range(self.size):
            self._job.send(rank, ("stop",))
        while not self._job.has_ended() and time.monotonic() < until:
            self._job.turn(0.1)
        self._job.end()

    def _take(self, stream: Stream, text: str) -> None:
        """Takes the ranks' lines of the launcher's output. The Job keeps the launcher's own
        messages."""
        *lines, self._lines[stream] = re.split(r"(?<=\n)|(?<=\r)(?!\n)", self._lines[stream] + text)
        for line in lines:
            if found := _RANK_LINE.fullmatch(line):
                self._add(int(found[1]), found[2], found[3])

    def _add(self, rank: int, stream: str, line: str) -> None:
        text, mark, number = line.partition(END_MARK)
        cell = self._cell
        if cell is None or rank not in cell.blocks:
            if text:
                self._early = [*self._early, (rank, stream, text)][-_RECENT_LINES:]
            return
        if text:
            cell.blocks[rank].add(stream, text)
            cell.recent.append((rank, text))
        if mark and number.strip() == str(cell.number):
            cell.open_streams.discard((rank, stream))

    def _lost(self) -> JobLost:
        said = "".join("\n  " + word for word in self._job.words)
        return JobLost(f"the ranks have ended; start new ones with %hvd start{said}")


def _checked(flags: Sequence[str]) -> Any:
    """Returns the parsed flags. The program itself checks the rest."""
    try:
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
            options = launch.parse_args(flags)
    except SystemExit:
        raise ValueError(
            f"invalid flags of horovodrun: {' '.join(flags)}; -np N is required"
        ) from None
    if options.use_mpi or options.use_jsrun:
        raise ValueError(
            "notebooks support only horovodrun's own launcher: leave out --mpi and --jsrun"
        )
    if options.min_num_proc is not None or options.host_discovery_script is not None:
        raise ValueError(
            "notebooks do not support elastic jobs: leave out --min-np and --host-discovery-script"
        )
    if options.command or options.num_proc is None:
        raise ValueError(f"only flags are expected, found {' '.join(flags)}")
    return options


def _environment() -> dict[str, str]:
    """Removes the notebook's matplotlib backend: ranks have no notebook to draw into."""
    environment = dict(os.environ)
    if environment.get("MPLBACKEND", "").startswith("module://matplotlib_inline"):
        environment["MPLBACKEND"] = "agg"
    return environment


@contextlib.contextmanager
def _interrupts() -> Iterator[socket.socket]:
    """Yields a socket that becomes readable after SIGINT, which then does not raise in the middle
    of a message. Only the main thread can be interrupted."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        if threading.current_thread() is not threading.main_thread():
            yield ours
            return
        before = signal.signal(signal.SIGINT, lambda *unused: theirs.send(b"i") and None)
        try:
            yield ours
        finally:
            signal.signal(signal.SIGINT, before)
