"""What we want to reach, as a table, and whether results show that we do. Pure.

A goal speaks of cells. It is missed as soon as one of these falls short, and met only when every
cell that it names was measured: a part of them shows nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from harness.options import SIZES
from harness.readings import (
    Cell,
    Read,
    best_ratios,
    ratios,
    ratios_to_mpi,
    shares_of,
    targets,
    within_spread,
)
from harness.results import BOUND, MEMORY, OURS, OURS_FLOAT32, Row, cell_of, cell_text
from harness.shapes import NETWORKS
from harness.verdict import digits, geometric_mean

STATES = MET, MISSED, NOT_MEASURED = "met", "missed", "not measured"

Place = tuple[str | int, ...]  #: of a cell, by the axes that a goal names


@dataclass(frozen=True)
class Cells:
    """Those of one bench. What is empty may be anything; of what is not, every combination has to
    be measured."""

    bench: str
    transport: tuple[str, ...] = ()
    kind: tuple[str, ...] = ()
    type: tuple[str, ...] = ()
    np: tuple[int, ...] = ()
    bytes: tuple[int, ...] = ()

    def axes(self) -> dict[str, Place]:
        named = {name: getattr(self, name) for name in ("transport", "kind", "type", "np", "bytes")}
        return {name: values for name, values in named.items() if values}

    def place(self, cell: Cell) -> Place:
        of_cell = {**vars(cell[0]), "bytes": cell[1]}
        return tuple(of_cell[name] for name in self.axes())

    def wanted(self) -> set[Place]:
        return set(itertools.product(*self.axes().values()))

    def have(self, cell: Cell) -> bool:
        return self.place(cell) in self.wanted()


@dataclass(frozen=True)
class Goal:
    key: str  #: by which bench/reasons.md names it
    what: str
    cells: Cells
    read: Read
    limit: float | None = None  #: None: a reading has its own, and is above 1 where it is kept
    mean: bool = False  #: the geometric mean counts, in place of the worst cell


# ---- the table ---------------------------------------------------------------------------------

KIB, MIB = 1 << 10, 1 << 20
FLOAT32, HALF = ("float32",), ("float16", "bfloat16")
KINDS = ("allgather", "broadcast", "alltoall", "reducescatter")
KINDS_BYTES = tuple(size for size in SIZES if KIB <= size <= 64 * MIB)
ALL_BYTES = tuple(SIZES)
HOSTS = ("2 hosts, 1gbit", "3 hosts, 1gbit", "4 hosts, 1gbit")

ALLREDUCE = Cells("allreduce", ("shm",), ("allreduce",), FLOAT32, (2, 4, 8), ALL_BYTES)
ALLREDUCE_NP_2 = replace(ALLREDUCE, np=(2,))
ALLREDUCE_64_MIB = replace(ALLREDUCE_NP_2, bytes=(64 * MIB,))
#: A core for each rank.
ALLREDUCE_CORES = replace(ALLREDUCE, transport=("shm, 16 cores",), np=(4, 8))
ALLREDUCE_HALF = Cells("half", ("shm",), ("allreduce",), HALF, (2, 4, 8), ALL_BYTES)
ALLREDUCE_TCP = replace(ALLREDUCE, transport=("tcp",), np=(2, 4))
ALLREDUCE_TCP_NP_2 = replace(ALLREDUCE_TCP, np=(2,))
ALLREDUCE_HALF_TCP = replace(ALLREDUCE_HALF, transport=("tcp",), np=(2, 4))
COLLECTIVES = Cells("collectives", ("shm",), KINDS, FLOAT32, (2, 4), KINDS_BYTES)
COLLECTIVES_TCP = replace(COLLECTIVES, transport=("tcp",))
WIRE_BYTES = (4 * MIB, 16 * MIB, 64 * MIB)
LINE_RATE = Cells("net", HOSTS, ("allreduce",), FLOAT32, bytes=WIRE_BYTES)
EIGHT_BYTES = Cells("net", HOSTS, ("allreduce",), FLOAT32, bytes=(8,))

#: Of a step: numbers of ranks that must be measured; of BERT-large, those that fit into memory.
STEP_NP = {"ResNet-50": (2, 4), "1000 x 1 KiB": (2, 4)}
WAYS: dict[str, tuple[str, Read]] = {
    "best": ("our best way", best_ratios),
    "each": ("one by one", ratios),
}


def worst_and_mean(key: str, words: str, cells: Cells, worst: float, mean: float) -> list[Goal]:
    """Of best peer / ours."""
    return [
        Goal(f"{key}-worst", f"{words}: best peer / ours, worst", cells, ratios, worst),
        Goal(f"{key}-mean", f"{words}: best peer / ours, mean", cells, ratios, mean, mean=True),
    ]


def half_types(key: str, words: str, cells: Cells) -> list[Goal]:
    """Ahead of those peers that have them, and at most 1.2 times as long as float32 takes."""
    as_float32 = f"{words}: our float32 of as many bytes / ours, worst (at most 1.2 x as long)"
    return [
        Goal(f"{key}-worst", f"allreduce of {words}: best peer / ours, worst", cells, ratios, 1.0),
        Goal(f"{key}-as-float32", as_float32, cells, shares_of(OURS_FLOAT32), 1 / 1.2),
    ]


def of_a_step(kind: str, network: str, way: str) -> Goal:
    words, read = WAYS[way]
    key = f"step-{kind}-{network.replace(' ', '-')}-{way}"
    cells = Cells("step", kind=(kind,), type=(network,), np=STEP_NP.get(network, ()))
    return Goal(key, f"{kind} of {network}, {words}: best peer / ours", cells, read, 1.5)


def overhead(type_: str, np: int) -> Cells:
    return Cells("overhead", ("torch",), ("overhead",), (type_,), (np,))


GOALS = (
    *worst_and_mean("allreduce", "allreduce of float32, shared memory", ALLREDUCE, 0.95, 1.5),
    Goal("allreduce-mean-np-2", "the same at np 2, mean", ALLREDUCE_NP_2, ratios, 1.15, mean=True),
    *worst_and_mean(
        "allreduce-cores",
        "the same with a core for each rank (np 4, 8 of 16)",
        ALLREDUCE_CORES,
        0.95,
        1.5,
    ),
    Goal(
        "allreduce-64-MiB",
        "64 MiB at np 2: one read and one write of the buffer / ours (at most 1.15 x as long)",
        ALLREDUCE_64_MIB,
        shares_of(BOUND),
        1 / 1.15,
    ),
    *half_types("half", "float16 and bfloat16", ALLREDUCE_HALF),
    *worst_and_mean("collectives", "other collectives, shared memory", COLLECTIVES, 0.95, 1.2),
    *worst_and_mean("tcp-allreduce", "allreduce of float32, TCP", ALLREDUCE_TCP, 0.95, 1.5),
    Goal(
        "tcp-allreduce-mean-np-2",
        "the same at np 2, mean",
        ALLREDUCE_TCP_NP_2,
        ratios,
        1.15,
        mean=True,
    ),
    *half_types("tcp-half", "float16 and bfloat16, TCP", ALLREDUCE_HALF_TCP),
    *worst_and_mean("tcp-collectives", "other collectives, TCP", COLLECTIVES_TCP, 0.95, 1.2),
    Goal(
        "net-line-rate",
        "between hosts, from 4 MiB up: what the wire needs / ours, worst",
        LINE_RATE,
        shares_of(BOUND),
        0.95,
    ),
    Goal(
        "net-8-bytes", "between hosts, 8 B: best MPI / ours, worst", EIGHT_BYTES, ratios_to_mpi, 1.0
    ),
    *(
        of_a_step(kind, network, way)
        for network in NETWORKS
        for kind in ("gradients", "backward")
        for way in WAYS
    ),
    Goal(
        "train",
        "a training to the same loss, np 2: best peer / ours",
        Cells("train", kind=("train",), np=(2,)),
        ratios,
        1.0,
    ),
    Goal(
        "4-bytes-result",
        "4 bytes from torch, np 2, to the result",
        overhead("4 bytes, to the result", 2),
        targets,
    ),
    Goal(
        "4-bytes-submission",
        "4 bytes from torch, np 2, submission alone",
        overhead("4 bytes, submission alone", 2),
        targets,
    ),
    Goal(
        "memory-core",
        "memory of a rank beside its tensors, without staging",
        Cells("overhead", ("shm", "tcp"), (MEMORY,), ("core",)),
        targets,
    ),
    Goal(
        "memory-staging",
        "memory of a rank for staging",
        Cells("overhead", ("shm", "tcp"), (MEMORY,), ("staging",)),
        targets,
    ),
    Goal(
        "memory-start",
        "memory of horovodrun, and of an agent on another host",
        Cells("start", kind=(MEMORY,), type=("horovodrun", "agent")),
        targets,
    ),
    Goal(
        "alone",
        "a training step at np 1: what our optimizer adds",
        overhead("training step", 1),
        within_spread,
    ),
)

#: What no bench shows but a test: the goal, the file, and the test in it.
TESTED = (
    (
        "an idle job wakes for nothing",
        "tests/launch/test_launch_rest.py",
        "test_an_idle_job_makes_no_system_call",
    ),
    (
        "dead peers are found by TCP keepalive",
        "core/transport/socket_test.cc",
        "TheKernelProbesAPeerThatIsSilent",
    ),
)


# ---- judging -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Judged:
    wanted: str
    shown: str  #: what it is
    state: str


def judge(goal: Goal, rows: Mapping[str, Sequence[Row]]) -> Judged:
    """By the rows of each bench."""
    mine = [row for row in rows.get(goal.cells.bench, ()) if goal.cells.have(cell_of(row))]
    found = goal.read(mine)
    failed = {cell_of(row) for row in mine} - {cell_of(r) for r in mine if r["peer"] == OURS}
    limit = 1.0 if goal.limit is None else goal.limit
    wanted = "-" if goal.limit is None else f"at least {limit:.3g}"
    shown: list[str] = []
    value = math.inf
    if found and goal.mean:
        value = geometric_mean(reading.value for reading in found.values())
        shown = [f"{digits(value, limit)} over {len(found)} cells"]
    elif found:
        cell, worst = min(found.items(), key=lambda item: item[1].value)
        value = worst.value
        wanted = worst.limit_text or wanted
        where = f" ({cell_text(*cell)})" if len(found) > 1 else ""
        shown = [(worst.text or digits(value, limit)) + where]
    lacking = goal.cells.wanted() - {goal.cells.place(cell) for cell in [*found, *failed]}
    if failed:
        shown += [f"ours failed in {len(failed)}"]
    if lacking and shown:
        shown += [f"{len(lacking)} of {len(goal.cells.wanted())} not measured"]
    # A mean of some cells says nothing of the others; one that falls short does.
    short = bool(failed) or (value < limit and not (goal.mean and lacking))
    state = MISSED if short else NOT_MEASURED if lacking else MET
    return Judged(wanted, "; ".join(shown) or "-", state)
