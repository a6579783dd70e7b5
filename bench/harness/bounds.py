"""What physics allows on this machine: the time in which the bytes of a call can be moved at all.

In shared memory, one core reads and writes its rank's buffer once, after one signal from another
core. Over TCP, a rank sends and receives what no algorithm can do without, after one message. Where
ranks outnumber cores they share them. A figure to look at, not a proof: caches are kinder to some.
"""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Sequence
from typing import Any

from harness import installing
from harness.jobs import Launch, Missing, run
from harness.namespaces import address, inside
from harness.places import cores
from harness.results import BOUND, Row, Work, limit

LIMIT_S = 120
LOOKS = 3  #: at the machine; what it did once, it can do: the fastest counts
Wire = dict[int, dict[str, Any]]  #: by bytes: one_way_us, both_ways_us


def program() -> str:
    return str(installing.program("memory", ["g++"], "memory.cc", "measure.cc"))


def memory(*arguments: str) -> list[dict[str, Any]]:
    ended = run(Launch([program(), *arguments], {}), LIMIT_S)
    if ended.why:
        raise Missing(ended.why)
    return ended.rows


@functools.cache
def copies(sizes: tuple[int, ...]) -> dict[int, float]:
    """us to copy so many bytes on one core."""
    listed = ",".join(str(size) for size in sizes)
    looks = [memory("copy", listed) for _ in range(LOOKS)]
    return {rows[0]["bytes"]: min(row["us"] for row in rows) for rows in zip(*looks, strict=True)}


@functools.cache
def signal_us() -> float:
    return min(float(memory("signal")[0]["us"]) for _ in range(LOOKS))


@functools.cache
def loopback(sizes: tuple[int, ...]) -> Wire:
    rows = memory("tcp", ",".join(str(size) for size in sizes))
    return {row["bytes"]: row for row in rows}


def traffic(kind: str, np: int) -> float:
    """What a rank must send, in parts of its buffer, when nobody sends anything twice."""
    share = (np - 1) / np
    return {"allreduce": 2 * share, "broadcast": share}.get(kind, share)


def shared_memory_us(work: Work, size: int, sizes: tuple[int, ...]) -> float:
    touched = (1 + 1 / work.np) / 2 if work.kind == "reducescatter" else 1
    return signal_us() + copies(sizes)[size] * touched * crowd(work.np)


def tcp_us(work: Work, size: int, sizes: tuple[int, ...]) -> float:
    return wire_us(work, size, loopback(sizes), work.np) * crowd(work.np)


def wire(server: str, client: str, sizes: Sequence[int]) -> Wire:
    """Between two hosts that are network namespaces."""
    words = [address(0), ",".join(str(size) for size in sizes)]
    serving = subprocess.Popen(inside(server, [program(), "serve", *words]))
    try:
        ended = run(Launch(inside(client, [program(), "connect", *words]), {}), LIMIT_S)
    finally:
        serving.kill()
        serving.wait()
    if ended.why:
        raise Missing(ended.why)
    return {row["bytes"]: row for row in ended.rows}


def wire_us(work: Work, size: int, wire: Wire, ends: int) -> float:
    """By what was measured on a wire, for each size; `ends` have one, and share the work."""
    way = "one_way_us" if work.kind == "broadcast" else "both_ways_us"
    least = min(row["one_way_us"] for row in wire.values())
    return float(max(least, wire[size][way] * traffic(work.kind, ends)))


def crowd(np: int) -> float:
    return max(1, np / cores())


def rows(work: Work, sizes: Sequence[int]) -> list[Row]:
    """As of a peer that nobody can beat."""
    model = shared_memory_us if work.transport == "shm" else tcp_us
    return [limit(BOUND, work, size, model(work, size, tuple(sizes))) for size in sizes]
