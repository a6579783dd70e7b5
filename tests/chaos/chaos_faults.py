"""Kills, stops and removes random ranks of a job, each of them a process that the job has started.

At any time one rank that has the state of training and is not stopped is left alone.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from chaos_hosts import OneHost, TwoHosts
from chaos_notes import Process, Reader

POLL_S = 0.02
#: A rank that has not committed for so long is not counted on. Members commit each step.
FRESH_S = 1.0
#: Silence after which ranks of the job are given up. Stops and cuts are shorter or longer.
HEARTBEAT_S = 1.0
#: How long it waits for a process to which something can happen.
PATIENCE_S = 120.0
KILL, KILL_TWO, KILL_NEW, LEAVE, STOP, STOP_AND_KILL, LOSE_HOST, CUT = (
    "kill",
    "kill-two",
    "kill-new",
    "leave",
    "stop",
    "stop-and-kill",
    "lose-host",
    "cut",
)
MEANING = {
    KILL: "kill -9 of a rank",
    KILL_TWO: "kill -9 of two ranks at once",
    KILL_NEW: "kill -9 of a process that joins",
    LEAVE: "SIGTERM to a rank, which leaves",
    STOP: "SIGSTOP, later SIGCONT",
    STOP_AND_KILL: "SIGSTOP of a rank, kill -9 of another",
    LOSE_HOST: "kill -9 of all processes on a host",
    CUT: "cut of the link between two hosts",
}
ON_ONE_HOST = {KILL: 4, KILL_TWO: 1, KILL_NEW: 1, LEAVE: 1, STOP: 3, STOP_AND_KILL: 2}
WEIGHTS = {**ON_ONE_HOST, LOSE_HOST: 1, CUT: 2}
#: Those that take more than one rank.
PAIRS = (KILL_TWO, STOP_AND_KILL)


@dataclass(frozen=True)
class Fault:
    kind: str
    at: float
    pids: tuple[int, ...]
    generation: int  #: of the ranks before it
    until: (
        float  #: when a stopped rank continues, or the link is up again; otherwise the same as `at`
    )

    @property
    def is_silence(self) -> bool:
        """Ranks are given up, if others wait for them."""
        return self.until - self.at > HEARTBEAT_S


class Handles:
    """Signals processes of `job`, and never another one that has got the number of one."""

    def __init__(self, job: int, place: OneHost) -> None:
        self._job = job
        self._place = place
        self._opened: dict[int, int] = {}

    def open(self, pid: int) -> bool:
        """Returns whether the process belongs to the job. Called when it is first seen."""
        if pid in self._opened:
            return True
        with contextlib.suppress(ProcessLookupError):
            handle = os.pidfd_open(pid)
            if self._place.owns(
                pid, self._job
            ):  # since then, the number cannot have been used again
                self._opened[pid] = handle
                return True
            os.close(handle)
        return False

    def signal(self, pid: int, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._opened[pid], number)

    def is_there(self, pid: int) -> bool:
        """A process that has ended counts as there until its parent has taken notice."""
        try:
            signal.pidfd_send_signal(self._opened[pid], 0)
        except ProcessLookupError:
            return False
        return True

    def left(self) -> list[int]:
        return [pid for pid in self._opened if self.is_there(pid)]

    def close(self) -> None:
        for handle in self._opened.values():
            os.close(handle)
        self._opened.clear()


@dataclass
class Injector:
    """Used by one thread. `every`: seconds between faults, on average. `kinds`: of faults. Each
    comes once, then they come at random."""

    reader: Reader
    handles: Handles
    place: OneHost
    draw: random.Random
    every: float
    longest_stop: float
    kinds: Sequence[str] = tuple(ON_ONE_HOST)
    faults: list[Fault] = field(default_factory=list)
    _next: list[str] = field(default_factory=list)
    _next_until: float = 0.0  #: when the first one of them is put off
    _cut_until: float | None = None
    _stopped: dict[int, float] = field(default_factory=dict)  #: until when
    _hurt: dict[int, float] = field(default_factory=dict)  #: processes, and when they were signaled

    def run(self, seconds: float, least: int, is_running: Callable[[], bool]) -> None:
        """Goes on until there were `least` faults, but ends if none was possible for a while."""
        self._next = self.draw.sample(self.kinds, len(self.kinds))
        end = time.monotonic() + seconds
        due = time.monotonic()
        try:
            while is_running():
                now = time.monotonic()
                if now >= end and (len(self.faults) >= least or now >= due + PATIENCE_S):
                    break
                self._end_stops(now)
                if now >= due and self._inject(self._kind(now), now):
                    self._next_until = 0.0
                    self._next.pop(0)
                    due = now + self.draw.uniform(0.3, 1.7) * self.every
                time.sleep(POLL_S)
        finally:
            self._end_stops(float("inf"))

    def _end_stops(self, now: float) -> None:
        if self._cut_until is not None and now >= self._cut_until:
            self._two_hosts().set_link(True)
            self._cut_until = None
        for pid, until in list(self._stopped.items()):
            if now >= until:
                self.handles.signal(pid, signal.SIGCONT)
                self._hurt[pid] = time.monotonic()
                del self._stopped[pid]

    def _kind(self, now: float) -> str:
        """Another one if there is no process for a kind in time: nobody may join at the moment."""
        if 0.0 < self._next_until <= now:
            self._next.append(self._next.pop(0))
            self._next_until = 0.0
        if self._next_until == 0.0:
            # A kind that was put off may come after the next one.
            self._next += self.draw.choices(self.kinds, [WEIGHTS[kind] for kind in self.kinds])
            self._next_until = now + 2 * self.every
        return self._next[0]

    def _inject(self, kind: str, now: float) -> bool:
        """Returns whether there was a process for it."""
        processes = self.reader.read()
        sound = [process for process in processes if self._is_sound(process, now)]
        if kind in (LOSE_HOST, CUT):
            return self._hurt_host(kind, sound, now)
        if kind == KILL_NEW:
            chosen = [one for one in processes if self._is_new(one)]
            spare = 0
        else:
            chosen, spare = sound, 1
        count = 2 if kind in PAIRS else 1
        if len(chosen) < count + spare:
            return False
        self.draw.shuffle(chosen)
        generation = max((process.generation for process in sound), default=-1)
        self._do(kind, [process.pid for process in chosen[:count]], generation)
        return True

    def _two_hosts(self) -> TwoHosts:
        assert isinstance(self.place, TwoHosts)
        return self.place

    def _hurt_host(self, kind: str, sound: Sequence[Process], now: float) -> bool:
        """Leaves a sound rank on the first host alone."""
        place = self._two_hosts()
        there = [one.pid for one in sound if place.host_of(one.pid) == place.SECOND]
        if not there or len(there) == len(sound) or self._cut_until is not None:
            return False
        until = now
        if kind == CUT:
            until = self._cut_until = now + self.draw.uniform(0.1, self.longest_stop)
            place.set_link(False)
        else:
            place.lose()
        # Ranks that are cut off may be given up, so none of them is counted on before the end.
        self._hurt.update(dict.fromkeys(there, until))
        generation = max(process.generation for process in sound)
        self.faults.append(Fault(kind, now, tuple(there), generation, until))
        return True

    def _is_sound(self, process: Process, now: float) -> bool:
        """It has the state, and nothing has happened to it since its last commit."""
        hurt = self._hurt.get(process.pid, 0.0)
        return (
            process.last_commit > max(hurt, now - FRESH_S)
            and process.pid not in self._stopped
            and self.handles.open(process.pid)
        )

    def _is_new(self, process: Process) -> bool:
        unknown = not process.commits and process.pid not in self._hurt
        return unknown and self.handles.open(process.pid)

    def _do(self, kind: str, pids: Sequence[int], generation: int) -> None:
        now = time.monotonic()
        until = now
        stops = kind in (STOP, STOP_AND_KILL)
        if stops:
            until = now + self.draw.uniform(0.1, self.longest_stop)
            self._stopped[pids[0]] = until
        for pid, number in zip(pids, self._signals(kind), strict=True):
            self._hurt[pid] = now
            self.handles.signal(pid, number)
        self.faults.append(Fault(kind, now, tuple(pids), generation, until))

    @staticmethod
    def _signals(kind: str) -> Iterator[int]:
        if kind == LEAVE:
            yield signal.SIGTERM
            return
        yield signal.SIGSTOP if kind in (STOP, STOP_AND_KILL) else signal.SIGKILL
        if kind in PAIRS:
            yield signal.SIGKILL
