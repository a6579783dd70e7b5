"""What physics allows on this machine: the time in which the bytes of a call can be moved at all.

In shared memory every byte of an input must be read once and every byte of a result written once,
by some core, after one signal from another; the cores share that work, at the pace at which one of
them copies alone. Over TCP a rank sends and receives what no algorithm can do without, over one
plain connection. Where ranks outnumber cores, they share them. Measured in every round, between
the contestants, so that a bound knows the same minutes as what stands beside it. A figure to look
at, not a proof: caches are kinder to some.
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


# ---- who measures it in a contest --------------------------------------------------------------


def in_machine(work: Work, sizes: Sequence[int]) -> Contestant:
    """As of a peer that nobody can beat. Raises Missing where there is no compiler."""
    program()
    look = {"shm": in_memory, "tcp": over_loopback}[work.transport]
    return entered(lambda: look(work, sizes))


def between_hosts(work: Work, sizes: Sequence[int], hosts: int) -> Contestant:
    """The same where hosts are network namespaces: ranks of a host share its wire."""
    program()
    return entered(lambda: over_wire(work, sizes, hosts))


def entered(look: Callable[[], Ended]) -> Contestant:
    return Contestant(BOUND, lambda only: look(), always=True)


# ---- in shared memory --------------------------------------------------------------------------


def touched(kind: str, np: int) -> float:
    """What a rank's core reads and writes at least, in parts of a copy of the larger buffer.

    A copy reads the buffer once and writes it once. Added up over all ranks and shared evenly, in
    buffers: allreduce and alltoall read `np` of them and write `np`. A reducescatter reads `np`
    and writes `np` parts, which are one; an allgather, its mirror, reads one and writes `np`. A
    broadcast reads one and writes `np - 1`: of two ranks one only reads and the other only writes,
    each half of what a copy does. That a core must load what it stores is not counted: it may come
    from a cache that the other one has filled.
    """
    buffers = {"reducescatter": np + 1, "allgather": 1 + np, "broadcast": np}
    return buffers.get(kind, 2 * np) / (2 * np)


def signal_us() -> float | None:
    """From one core to another; None where that cannot be measured."""
    try:
        _, signals = in_shared_memory([])
    except Missing:
        return None
    return signals[0] if signals else None


def in_shared_memory(sizes: Sequence[int]) -> tuple[Ended, list[float]]:
    """Copies of these sizes, and the one signal before them, where it came so far."""
    ended = run(Launch([program(), "shared", listed(sizes)], {}), LIMIT_S)
    return ended, [row["us"] for row in ended.rows if row["what"] == "signal"]


def in_memory(work: Work, sizes: Sequence[int]) -> Ended:
    ended, signals = in_shared_memory(sizes)
    copies = {row["bytes"]: row["us"] for row in ended.rows if row["what"] == "copy"}
    share = touched(work.kind, work.np) * crowd(work.np)
    return told(ended, work, {size: signals[0] + us * share for size, us in copies.items()})


# ---- over TCP ----------------------------------------------------------------------------------


def traffic(kind: str, np: int) -> float:
    """What some rank must send or receive, in parts of its buffer, when nobody sends anything
    twice. Of a broadcast that is all of it, by whoever is not the root."""
    share = (np - 1) / np
    return {"allreduce": 2 * share, "broadcast": 1}.get(kind, share)


def way(kind: str) -> str:
    """In which directions at once, as the program spells it."""
    return "one" if kind == "broadcast" else "both"


def sent_bytes(work: Work, sizes: Sequence[int], ends: int) -> dict[int, int]:
    """By size: what goes over a wire of which each of `ends` has one. Measured as it is: of small
    messages the way takes the time, and not the bytes."""
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
    """The other end of the wire, on the first host."""
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
    """How many ranks share a core."""
    return max(1, np / cores())


def listed(sizes: Collection[int]) -> str:
    return ",".join(str(size) for size in sorted(sizes))


def told(ended: Ended, work: Work, us: Mapping[int, float]) -> Ended:
    """`ended` with the rows of a contest, by size."""
    rows = [
        {**vars(work), "bytes": size, "median_us": value, "min_us": value}
        for size, value in us.items()
    ]
    return replace(ended, rows=rows)
