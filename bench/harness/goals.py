"""The table of goals, and the decision whether results reach them. Pure.

A goal covers cells. It is missed if one cell falls short. It is met only if all its cells were
measured.
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
    worst_targets,
)
from harness.results import (
    BOUND,
    MEMORY,
    OURS,
    OURS_FLOAT32,
    OURS_UNDER_DDP,
    Row,
    cell_of,
    cell_text,
)
from harness.shapes import NETWORKS
from harness.verdict import digits, geometric_mean

STATES = MET, MISSED, NOT_MEASURED = "met", "missed", "not measured"

Place = tuple[str | int, ...]  #: the values of a cell on the axes of a goal


@dataclass(frozen=True)
class Cells:
    """Cells of one benchmark. An empty axis allows any value; of the other axes, every combination
    must be measured. `but`: values of `type` that do not count."""

    bench: str
    transport: tuple[str, ...] = ()
    kind: tuple[str, ...] = ()
    type: tuple[str, ...] = ()
    np: tuple[int, ...] = ()
    bytes: tuple[int, ...] = ()
    but: tuple[str, ...] = ()

    def axes(self) -> dict[str, Place]:
        named = {name: getattr(self, name) for name in ("transport", "kind", "type", "np", "bytes")}
        return {name: values for name, values in named.items() if values}

    def place(self, cell: Cell) -> Place:
        of_cell = {**vars(cell[0]), "bytes": cell[1]}
        return tuple(of_cell[name] for name in self.axes())

    def wanted(self) -> set[Place]:
        return set(itertools.product(*self.axes().values()))

    def have(self, cell: Cell) -> bool:
        return self.place(cell) in self.wanted() and cell[0].type not in self.but


@dataclass(frozen=True)
class Goal:
    key: str  #: its name in bench/reasons.md
    what: str
    cells: Cells
    read: Read
    limit: float | None = (
        None  #: None: each reading has its own limit, and a value above 1 meets it
    )
    mean: bool = False  #: judges the geometric mean instead of the worst cell


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
#: One core per rank.
ALLREDUCE_CORES = replace(ALLREDUCE, transport=("shm, 16 cores",), np=(4, 8))
ALLREDUCE_HALF = Cells("half", ("shm",), ("allreduce",), HALF, (2, 4, 8), ALL_BYTES)
ALLREDUCE_TCP = replace(ALLREDUCE, transport=("tcp",), np=(2, 4))
ALLREDUCE_TCP_NP_2 = replace(ALLREDUCE_TCP, np=(2,))
ALLREDUCE_HALF_TCP = replace(ALLREDUCE_HALF, transport=("tcp",), np=(2, 4))
COLLECTIVES = Cells("collectives", ("shm",), KINDS, FLOAT32, (2, 4), KINDS_BYTES)
COLLECTIVES_TCP = replace(COLLECTIVES, transport=("tcp",))
JAX_BYTES = (16, KIB, 64 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB)
WIRE_BYTES = (4 * MIB, 16 * MIB, 64 * MIB)
LINE_RATE = Cells("net", HOSTS, ("allreduce",), FLOAT32, bytes=WIRE_BYTES)
EIGHT_BYTES = Cells("net", HOSTS, ("allreduce",), FLOAT32, bytes=(8,))

#: Numbers of ranks that must be measured for a step. BERT-large: any that fit into memory.
STEP_NP = {"ResNet-50": (2, 4), "21 layers": (2, 4), "1000 x 1 KiB": (2, 4)}
WAYS: dict[str, tuple[str, Read]] = {
    "best": ("our best way", best_ratios),
    "each": ("one by one", ratios),
}


def worst_and_mean(key: str, words: str, cells: Cells, worst: float, mean: float) -> list[Goal]:
    """Returns the goals for the worst cell and the mean of best peer / ours."""
    return [
        Goal(f"{key}-worst", f"{words}: best peer / ours, worst", cells, ratios, worst),
        Goal(f"{key}-mean", f"{words}: best peer / ours, mean", cells, ratios, mean, mean=True),
    ]


def half_types(key: str, words: str, cells: Cells) -> list[Goal]:
    """Faster than the peers that have these types, and at most 1.2 times the time of float32."""
    as_float32 = f"allreduce of {words}: our float32 at equal bytes / ours, worst"
    return [
        Goal(f"{key}-worst", f"allreduce of {words}: best peer / ours, worst", cells, ratios, 1.0),
        Goal(f"{key}-as-float32", as_float32, cells, shares_of(OURS_FLOAT32), 1 / 1.2),
    ]


def of_a_step(kind: str, network: str, way: str) -> Goal:
    words, read = WAYS[way]
    if (kind, way) == ("backward", "each"):
        words = "by default"  # the optimizer may group small gradients
    key = f"step-{kind}-{network.replace(' ', '-')}-{way}"
    cells = Cells("step", kind=(kind,), type=(network,), np=STEP_NP.get(network, ()))
    return Goal(key, f"{kind} of {network}, {words}: best peer / ours", cells, read, 1.5)


def beside_ddp(network: str) -> Goal:
    """DistributedOptimizer is not slower than DistributedDataParallel over the same runtime."""
    key = f"step-backward-{network.replace(' ', '-')}-ddp"
    cells = Cells("step", kind=("backward",), type=(network,), np=STEP_NP.get(network, ()))
    words = f"backward of {network}, by default: under DDP / ours"
    return Goal(key, words, cells, shares_of(OURS_UNDER_DDP), 1.0)


def overhead(type_: str, np: int) -> Cells:
    return Cells("overhead", ("torch",), ("overhead",), (type_,), (np,))


def of_recovery() -> list[Goal]:
    """The limits are targets among the rows (MOST_S in bench/recovery.py)."""
    places, both = ("one host", "2 hosts"), ("median", "worst")
    kinds = {
        "recovery": ("kill -9 to the next commit", "from kill -9 of a rank to the next commit"),
        "joiner": (
            "start of a new process to its first commit",
            "from the start of a replacement to its first commit",
        ),
        "stall": (
            "stall of the others while it joins, steps of 50 ms",
            "stall of the others while a replacement joins, less than a step of 50 ms",
        ),
    }
    cost = ("step of 50 ms",), ("elastic, commit after each 10th",), (2,)
    transfer = ("state of 256 MiB",), ("to a rank that joins",), (2,)
    words_of_cost = "a step of 50 ms, commit after each 10th, compared with a job that is not"
    return [
        *(
            Goal(
                key,
                f"elastic job, np 4: {words}",
                Cells("recovery", places, (kind,), both, (4,)),
                targets,
            )
            for key, (kind, words) in kinds.items()
        ),
        Goal(
            "elastic-cost",
            f"elastic job, np 2: {words_of_cost}",
            Cells("recovery", ("one host",), *cost),
            targets,
        ),
        Goal(
            "state-transfer",
            "elastic job, np 2: a state of 256 MiB to a rank that joins: plain connection / ours",
            Cells("recovery", ("2 hosts, 1gbit",), *transfer),
            shares_of(BOUND),
            0.8,
        ),
    ]


#: Kinds and types of bench/faults.py.
LOST_LAUNCHER = "kill -9 of all on the launcher's host"
ENDS = ("kill -9", "os._exit", "sys.exit", "out of memory", LOST_LAUNCHER)
SILENCES = (
    "SIGSTOP, heartbeat of 1 s",
    "SIGSTOP",
    "network partition, heartbeat of 1 s",
    "network partition, timeout of the start of 3 s",
)
ELASTIC = (
    "reset of an elastic job, to its next step",
    "training of an elastic job, to its next commit",
)


def of_faults() -> list[Goal]:
    """The limits are targets among the rows (bench/faults.py). The slowest trial counts."""
    words = {
        "end": ("end of a rank to the error", ENDS),
        "silence": (
            "silence to the error: heartbeat + 0.1 s; network in init: its timeout + 1 s",
            SILENCES,
        ),
    }
    return [
        *(
            Goal(
                f"faults-{key}",
                f"np 4: {what}, slowest rank and trial",
                Cells("faults", kind=kinds, np=(4,), but=ELASTIC),
                worst_targets,
            )
            for key, (what, kinds) in words.items()
        ),
        Goal(
            "faults-elastic",
            "elastic job, np 4: fault to the next step, 1 s more, slowest rank and trial",
            Cells("faults", type=ELASTIC, np=(4,)),
            worst_targets,
        ),
    ]


GOALS = (
    *worst_and_mean("allreduce", "allreduce of float32, shared memory", ALLREDUCE, 0.95, 1.5),
    Goal(
        "allreduce-mean-np-2",
        "allreduce of float32, shared memory, np 2: best peer / ours, mean",
        ALLREDUCE_NP_2,
        ratios,
        1.15,
        mean=True,
    ),
    *worst_and_mean(
        "allreduce-cores",
        "allreduce of float32, shared memory, one core per rank",
        ALLREDUCE_CORES,
        0.95,
        1.5,
    ),
    Goal(
        "allreduce-64-MiB",
        "allreduce of 64 MiB, shared memory, np 2: bound / ours",
        ALLREDUCE_64_MIB,
        shares_of(BOUND),
        1 / 1.15,
    ),
    *half_types("half", "float16 and bfloat16, shared memory", ALLREDUCE_HALF),
    *worst_and_mean("collectives", "other collectives, shared memory", COLLECTIVES, 0.95, 1.2),
    *worst_and_mean("tcp-allreduce", "allreduce of float32, TCP", ALLREDUCE_TCP, 0.95, 1.5),
    Goal(
        "tcp-allreduce-mean-np-2",
        "allreduce of float32, TCP, np 2: best peer / ours, mean",
        ALLREDUCE_TCP_NP_2,
        ratios,
        1.15,
        mean=True,
    ),
    *half_types("tcp-half", "float16 and bfloat16, TCP", ALLREDUCE_HALF_TCP),
    *worst_and_mean("tcp-collectives", "other collectives, TCP", COLLECTIVES_TCP, 0.95, 1.2),
    Goal(
        "net-line-rate",
        "between hosts, 4 MiB and larger: bound / ours, worst",
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
    *(beside_ddp(network) for network in NETWORKS),
    Goal(
        "train",
        "training to the same loss, np 2: best peer / ours",
        Cells("train", kind=("train",), np=(2,)),
        ratios,
        1.0,
    ),
    Goal(
        "jax",
        "allreduce of 16 B to 64 MiB under jax.jit, np 2: best peer / ours, worst",
        Cells("with_jax", np=(2,), bytes=JAX_BYTES),
        ratios,
        1.0,
    ),
    Goal(
        "4-bytes-result",
        "allreduce of 4 bytes from torch, np 2, to the result",
        overhead("4 bytes, to the result", 2),
        targets,
    ),
    Goal(
        "4-bytes-submission",
        "allreduce of 4 bytes from torch, np 2, submission alone",
        overhead("4 bytes, submission alone", 2),
        targets,
    ),
    Goal(
        "memory-core",
        "memory per rank beside its tensors, without staging",
        Cells("overhead", ("shm", "tcp"), (MEMORY,), ("core",)),
        targets,
    ),
    Goal(
        "memory-staging",
        "memory per rank for staging",
        Cells("overhead", ("shm", "tcp"), (MEMORY,), ("staging",)),
        targets,
    ),
    Goal(
        "memory-start",
        "memory of horovodrun, and of its agent on another host",
        Cells("start", kind=(MEMORY,), type=("horovodrun", "agent")),
        targets,
    ),
    *of_faults(),
    *of_recovery(),
    Goal(
        "alone",
        "training step at np 1: time that our optimizer adds",
        overhead("training step", 1),
        within_spread,
    ),
)

#: Goals that a test checks instead of a bench: the goal, the file, and the test in it.
TESTED = (
    (
        "an idle job makes no system call",
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
    shown: str  #: the measured value
    state: str


def judge(goal: Goal, rows: Mapping[str, Sequence[Row]]) -> Judged:
    """Judges by the rows of each benchmark."""
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
    # A mean over some cells is not conclusive. A single cell that falls short is.
    short = bool(failed) or (value < limit and not (goal.mean and lacking))
    state = MISSED if short else NOT_MEASURED if lacking else MET
    return Judged(wanted, "; ".join(shown) or "-", state)
