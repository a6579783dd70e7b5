"""Lower bounds of this machine: the least time in which the bytes of a call can be moved.

In shared memory, some core must read every byte of an input and write every byte of a result once,
after one signal from another core. The cores share that work, each at the speed of a copy on one
core. Over TCP, a rank sends and receives the minimum of any algorithm over one plain connection.
Ranks may be oversubscribed. Measured in every round, between the contestants, under the same
conditions. A reference value, not a proof: caches favour some algorithms.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from harness import installing
from harness.jobs import Ended, Launch, Missing, run
from harness.namespaces import address, inside, name
from harness.places import cores
from harness.results import BOUND, Work
from harness.rounds import Contestant

LIMIT_S = 120


def program() -> str:
    return str(installing.program("memory", ["g++"], "memory.cc", "measure.cc"))


# ---- the bound as a contestant -----------------------------------------------------------------


def in_machine(work: Work, sizes: Sequence[int]) -> Contestant:
    """Measures the bound like a peer. Raises Missing if there is no compiler."""
    program()
    look = {"shm": in_memory, "tcp": over_loopback}[work.transport]
    return entered(lambda: look(work, sizes))


def between_hosts(work: Work, sizes: Sequence[int], hosts: int) -> Contestant:
    """Measures the bound between network namespaces: ranks of a host share its link."""
    program()
    return entered(lambda: over_wire(work, sizes, hosts))


def entered(look: Callable[[], Ended]) -> Contestant:
    return Contestant(BOUND, lambda only: look(), always=True)


# ---- in shared memory --------------------------------------------------------------------------


def touched(kind: str, np: int) -> float:
    """Returns the least that a rank's core reads and writes, as a fraction of a copy of the larger
    buffer.

    A copy reads the buffer once and writes it once. All ranks together read and write this many
    buffers, in equal shares: an allreduce and an alltoall read `np` and write `np`. A reducescatter
    reads `np` and writes one (`np` parts). An allgather reads one and writes `np`. A broadcast
    reads one and writes `np - 1`: with two ranks, one rank only reads and the other only writes,
    each half of a copy. Loads that stores cause are not counted, since the line may come from
    another core's cache.
    """
    buffers = {"reducescatter": np + 1, "allgather": 1 + np, "broadcast": np}
    return buffers.get(kind, 2 * np) / (2 * np)


def signal_us() -> float | None:
    """Returns the time of a signal from one core to another, None if it cannot be measured."""
    try:
        _, signals = in_shared_memory([])
    except Missing:
        return None
    return signals[0] if signals else None


def in_shared_memory(sizes: Sequence[int]) -> tuple[Ended, list[float]]:
    """Returns the times of copies of these sizes, plus the time of the signal if it was
    measured."""
    ended = run(Launch([program(), "shared", listed(sizes)], {}), LIMIT_S)
    return ended, [row["us"] for row in ended.rows if row["what"] == "signal"]


def in_memory(work: Work, sizes: Sequence[int]) -> Ended:
    ended, signals = in_shared_memory(sizes)
    copies = {row["bytes"]: row["us"] for row in ended.rows if row["what"] == "copy"}
    share = touched(work.kind, work.np) * crowd(work.np)
    return told(ended, work, {size: signals[0] + us * share for size, us in copies.items()})


# ---- over TCP ----------------------------------------------------------------------------------


def traffic(kind: str, np: int) -> float:
    """Returns the least that some rank must send or receive, as a fraction of its buffer, if no
    byte is sent twice. For a broadcast it is 1, on every rank except the root."""
    share = (np - 1) / np
    return {"allreduce": 2 * share, "broadcast": 1}.get(kind, share)


def way(kind: str) -> str:
    """Returns the directions that are used at the same time, as the program spells them."""
    return "one" if kind == "broadcast" else "both"


def sent_bytes(work: Work, sizes: Sequence[int], ends: int) -> dict[int, int]:
    """Returns, by size, the bytes to send over a link if each of `ends` has one. At least 1 byte,
    for the latency."""
    return {size: max(1, round(size * traffic(work.kind, ends))) for size in sizes}


def over_loopback(work: Work, sizes: Sequence[int]) -> Ended:
    sent = sent_bytes(work, sizes, work.np)
    command = [program(), "tcp", way(work.kind), listed(set(sent.values()))]
    ended = run(Launch(command, {}), LIMIT_S)
    return of_wire(ended, work, sent, crowd(work.np))


def over_wire(work: Work, sizes: Sequence[int], hosts: int) -> Ended:
    sent = sent_bytes(work, sizes, hosts)
    words = [address(0), way(work.kind), listed(set(sent.values()))]
    with serving(words):
        ended = run(Launch(inside(name(1), [program(), "connect", *words]), {}), LIMIT_S)
    return of_wire(ended, work, sent, 1)


@contextlib.contextmanager
def serving(words: Sequence[str]) -> Iterator[None]:
    """Runs the other end of the link, on the first host."""
    process = subprocess.Popen(inside(name(0), [program(), "serve", *words]))
    try:
        yield
    finally:
        process.kill()
        process.wait()


def of_wire(ended: Ended, work: Work, sent: Mapping[int, int], share: float) -> Ended:
    took = {row["bytes"]: row["us"] for row in ended.rows}
    found = {size: took[count] * share for size, count in sent.items() if count in took}
    return told(ended, work, found)


# ---- both --------------------------------------------------------------------------------------


def crowd(np: int) -> float:
    """Returns the number of ranks per core."""
    return max(1, np / cores())


def listed(sizes: Collection[int]) -> str:
    return ",".join(str(size) for size in sorted(sizes))


def told(ended: Ended, work: Work, us: Mapping[int, float]) -> Ended:
    """Returns `ended` with the rows of a contest, by size."""
    rows = [
        {**vars(work), "bytes": size, "median_us": value, "min_us": value}
        for size, value in us.items()
    ]
    return replace(ended, rows=rows)
