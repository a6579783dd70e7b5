"""Measures the connections between hosts, pair by pair, as training would use them.

Runs on one rank per host. Each line of output is one result of a rank, as JSON: the measurement of
a pair (written by its first rank), or the addresses of a connection of this rank.
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
#: Total time for all pairs.
_SECONDS = 3.0
_LEAST_SECONDS, _MOST_SECONDS = 0.05, 0.6  #: per pair
#: Up to this number of hosts, pairs are measured one after another, without interfering.
_HOSTS_ONE_BY_ONE = 6
#: With many hosts, each is measured with at most this number of others.
_MOST_ROUNDS = 31
_LEAST_BYTES, _MOST_BYTES = 1 << 16, 1 << 25
_MOST_PINGS = 50
#: In one of them, another program may have used the CPU.
_LEAST_REPEATS = 2
_ORDER = struct.Struct("=qq")  #: operation, and number of bytes
_CLOCK = struct.Struct("=d")
_PING, _THERE, _BACK, _END = range(4)


@dataclass
class Way:
    """A connection between two hosts, named by their ranks. Rates are in bytes per second."""

    a: int
    b: int
    there: float = 0.0
    back: float = 0.0
    round_trip_seconds: float = 0.0
    clock_seconds: float = 0.0  #: how far the clock of b is ahead of the clock of a
    clock_error_seconds: float = 0.0
    problem: str = ""


@dataclass
class Reached:
    """The addresses of an open connection of a rank."""

    rank: int
    own: str
    other: str


def rounds(size: int) -> list[list[tuple[int, int]]]:
    """Returns rounds of pairs that are measured at the same time. No rank is in two pairs of a
    round."""
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
    """Runs on the first rank, which chooses the operations and measures the time."""

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
        """Measures round trip and clock offset. The fastest answer gives the most exact offset."""
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
        """Doubles the size while twice as much fits into the time, then repeats that size. Uses the
        fastest result of that size only: a throttled network may allow a short burst at full
        speed."""
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
        with contextlib.suppress(OSError):  # it was closed meanwhile, or is a listener
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
    """Parses the lines of `_tell` in a text, ignoring all other lines."""
    found: list[Way | Reached] = []
    for line in text.splitlines():
        if line.startswith(MARK):
            kind, values = json.loads(line.removeprefix(MARK))
            found.append(Way(**values) if kind == "Way" else Reached(**values))
    return found


def _measure(runtime: Runtime, pair: tuple[int, int], seconds: float) -> None:
    way = Way(*pair)
    try:
        with Group(pair) as group:
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
        with Runtime() as runtime, Group([]) as everybody:
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
