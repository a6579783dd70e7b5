"""Measures the ways between hosts, pair by pair, over the connections that training would use.

Started on one rank a host. Each line that it writes is what one rank has found out, as JSON: the
way of a pair (told by its first rank), or by which addresses this rank reaches others.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import json
import os
import socket
import struct
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from horovod.doctor.runtime import Failed, Group, Runtime

MARK = "horovod-doctor:"
#: For all pairs together.
_SECONDS = 3.0
_LEAST_SECONDS, _MOST_SECONDS = 0.05, 0.6  #: of a pair
#: Up to here pairs are measured one after another, so that they share nothing.
_HOSTS_ONE_BY_ONE = 6
#: Of more hosts each is measured with so many others.
_MOST_ROUNDS = 31
_LEAST_BYTES, _MOST_BYTES = 1 << 16, 1 << 25
_MOST_PINGS = 50
#: Another program may have had the processor in one of them.
_LEAST_REPEATS = 2
_ORDER = struct.Struct("=qq")  #: what to do, and with how many bytes
_CLOCK = struct.Struct("=d")
_PING, _THERE, _BACK, _END = range(4)


@dataclass
class Way:
    """Between two hosts, by their ranks. Rates are bytes a second."""

    a: int
    b: int
    there: float = 0.0
    back: float = 0.0
    round_trip_seconds: float = 0.0
    clock_seconds: float = 0.0  #: by how much the clock of b is ahead of that of a
    clock_error_seconds: float = 0.0
    problem: str = ""


@dataclass
class Reached:
    """An open connection of a rank."""

    rank: int
    own: str
    other: str


def rounds(size: int) -> list[list[tuple[int, int]]]:
    """Pairs that are measured at the same time; nobody is in two of a round."""
    seats = [*range(size), *([-1] if size % 2 else [])]
    found = []
    for _ in range(len(seats) - 1):
        half = len(seats) // 2
        pairs = zip(seats[:half], reversed(seats[half:]), strict=True)
        found.append([(min(pair), max(pair)) for pair in pairs if -1 not in pair])
        seats = [seats[0], seats[-1], *seats[1:-1]]
    if size <= _HOSTS_ONE_BY_ONE:
        return [[pair] for pair in sorted(pair for one in found for pair in one)]
    return found[:_MOST_ROUNDS]


class _Pair:
    """The first rank says what is done, and takes the time."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._memory = ctypes.create_string_buffer(_MOST_BYTES)

    def follow(self) -> None:
        while True:
            self._group.broadcast(self._memory, _ORDER.size, 0)
            order, count = _ORDER.unpack_from(self._memory)
            if order == _END:
                return
            if order == _BACK:
                self._group.broadcast(self._memory, count, 1)
                continue
            if order == _THERE:
                self._group.broadcast(self._memory, count, 0)
            _CLOCK.pack_into(self._memory, 0, time.time())
            self._group.broadcast(self._memory, _CLOCK.size, 1)

    def lead(self, way: Way, seconds: float) -> None:
        self._ping(way, seconds / 4)
        way.there = self._rate(_THERE, way.round_trip_seconds, seconds / 3)
        way.back = self._rate(_BACK, way.round_trip_seconds, seconds / 3)
        self._order(_END)

    def _order(self, order: int, count: int = 0) -> None:
        _ORDER.pack_into(self._memory, 0, order, count)
        self._group.broadcast(self._memory, _ORDER.size, 0)

    def _ping(self, way: Way, seconds: float) -> None:
        """The quickest answer has waited least on its way, so it tells most about the clock."""
        until = time.monotonic() + seconds
        best = float("inf")
        for number in range(_MOST_PINGS):
            begin, clock = time.monotonic(), time.time()
            self._order(_PING)
            self._group.broadcast(self._memory, _CLOCK.size, 1)
            took = time.monotonic() - begin
            if took < best:
                best = took
                (theirs,) = _CLOCK.unpack_from(self._memory)
                way.clock_seconds = theirs - (clock + took / 2)
                way.clock_error_seconds = took / 2
            if number > 2 and time.monotonic() > until:
                break
        way.round_trip_seconds = best

    def _rate(self, order: int, round_trip: float, seconds: float) -> float:
        """Doubles what is sent while twice as much fits into the time, then repeats that. Only the
        most counts: a network that is limited may let a little through at full speed."""
        until = time.monotonic() + seconds
        count = _LEAST_BYTES
        best, repeats = 0.0, 0
        while True:
            begin = time.monotonic()
            self._order(order, count)
            self._group.broadcast(self._memory, count, 0 if order == _THERE else 1)
            if order == _THERE:
                self._group.broadcast(self._memory, _CLOCK.size, 1)
            took = time.monotonic() - begin
            left = until - time.monotonic()
            best = max(best, count / max(took - round_trip, took / 2))
            repeats += 1
            if count < _MOST_BYTES and left > 2 * _LEAST_REPEATS * took:
                count *= 2
                best, repeats = 0.0, 0
            elif repeats >= _LEAST_REPEATS and left < took:
                return best


def _reached(rank: int) -> list[Reached]:
    found = []
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # it has been closed meanwhile, or is a listener
            if not os.readlink(path).startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(path.name))) as one:
                if one.family in (socket.AF_INET, socket.AF_INET6):
                    ends = _plain(one.getsockname()), _plain(one.getpeername())
                    found.append(Reached(rank, *ends))
    return found


def _plain(address: tuple[str, ...]) -> str:
    return address[0].removeprefix("::ffff:")


def _tell(what: Way | Reached) -> None:
    line = json.dumps([type(what).__name__, dataclasses.asdict(what)])
    print(MARK, line, flush=True)


def told(text: str) -> list[Way | Reached]:
    """What `_tell` has written, among whatever else was."""
    found: list[Way | Reached] = []
    for line in text.splitlines():
        if line.startswith(MARK):
            kind, values = json.loads(line.removeprefix(MARK))
            found.append(Way(**values) if kind == "Way" else Reached(**values))
    return found


def _measure(runtime: Runtime, pair: tuple[int, int], seconds: float) -> None:
    way = Way(*pair)
    try:
        with Group(runtime, pair) as group:
            if runtime.rank == pair[0]:
                _Pair(group).lead(way, seconds)
            else:
                _Pair(group).follow()
    except Failed as error:
        way.problem = str(error)
    if runtime.rank == pair[0] or way.problem:
        _tell(way)


def main() -> int:
    try:
        with Runtime() as runtime, Group(runtime, []) as everybody:
            for reached in {(one.own, one.other): one for one in _reached(runtime.rank)}.values():
                _tell(reached)
            plan = rounds(runtime.size)
            seconds = min(max(_SECONDS / len(plan), _LEAST_SECONDS), _MOST_SECONDS)
            for pairs in plan:
                for pair in pairs:
                    if runtime.rank in pair:
                        _measure(runtime, pair, seconds)
                everybody.barrier()
    except Failed as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
