"""The results of a benchmark: one row per peer and cell, in a JSON file that can be extended."""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from harness import machine
from harness.rounds import Outcome
from harness.verdict import Verdict, digits, geometric_mean, judge

OURS = "ours"
BOUND = "bound"  #: the peer that stands for the lower bound of the machine
TARGET = "target"  #: the peer that stands for a fixed limit
BEFORE = "before"  #: an older version of ours
OURS_FLOAT32 = "ours, float32"  #: our float32 at the same bytes, in tables of other types
#: DistributedDataParallel whose buckets are reduced by our backend of torch.distributed.
OURS_UNDER_DDP = "ours, under DDP, views"
MEMORY = "memory"  #: a kind whose values are bytes of memory instead of microseconds

Row = dict[str, Any]


@dataclass(frozen=True, order=True)
class Work:
    """The properties that all sizes of one table share."""

    transport: str
    kind: str
    type: str
    np: int

    @staticmethod
    def of(row: Row) -> Work:
        return Work(row["transport"], row["kind"], row["type"], row["np"])

    def on(self, machine: str | None) -> Work:
        """Returns the same work on a named machine; None: on the usual machines."""
        return replace(self, transport=f"{self.transport}, {machine}") if machine else self

    def __str__(self) -> str:
        return f"{self.kind} {self.type}, np {self.np}, {self.transport}"


def is_ours(name: str) -> bool:
    """Returns whether it is ours, or another way of using it, such as `ours, in one group`."""
    return name == OURS or name.startswith(OURS + ", ")


def is_peer(name: str) -> bool:
    return not is_ours(name) and name not in (BOUND, TARGET, BEFORE)


def variants(rows: Iterable[Row]) -> list[str]:
    """Returns the other ways of using ours that are also compared with peers."""
    names = dict.fromkeys(row["peer"] for row in rows)
    return [name for name in names if is_ours(name) and name not in (OURS, OURS_FLOAT32)]


def cell_of(row: Row) -> tuple[Work, int]:
    return Work.of(row), row["bytes"]


def rounds_of(row: Row) -> dict[int, float]:
    """Returns the rounds of a row by number. JSON stores the numbers as strings."""
    return {int(number): value for number, value in row["rounds"].items()}


def collapse(outcome: Outcome) -> list[Row]:
    """Returns one row per peer and cell, with the medians of its rounds. A wrong result in any
    round makes a gap, since not every round is checked."""
    found: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in outcome.rows:
        found[(row["peer"], Work.of(row), row["bytes"])].append(row)
    for (peer, _, size), rows in found.items():
        if not all(row.get("correct", True) for row in rows):
            outcome.missing[peer] = f"a wrong result at {size} bytes"
            rows.clear()
    return [
        {
            "peer": peer,
            **vars(work),
            "bytes": size,
            "median_us": statistics.median(row["median_us"] for row in rows),
            "min_us": min(row["min_us"] for row in rows),
            "rounds": {str(row["round"]): row["median_us"] for row in rows},
        }
        for (peer, work, size), rows in found.items()
        if rows
    ]


def verdicts(rows: Iterable[Row], ours: str = OURS) -> dict[tuple[Work, int], Verdict]:
    """Returns a verdict per cell that has times of `ours`. Memory is omitted, since it is judged by
    a target."""
    cells: dict[tuple[Work, int], dict[str, dict[int, float]]] = defaultdict(dict)
    for row in (row for row in rows if row["kind"] != MEMORY):
        cells[(Work.of(row), row["bytes"])][row["peer"]] = rounds_of(row)
    judged = {}
    for cell, entered in cells.items():
        peers = {name: rounds for name, rounds in entered.items() if is_peer(name)}
        verdict = judge(entered.get(ours, {}), peers)
        if verdict is not None:
            judged[cell] = verdict
    return judged


def last_line(judged: dict[tuple[Work, int], Verdict]) -> str:
    ratios = {cell: v.ratio for cell, v in judged.items() if v.ratio is not None}
    if not ratios:
        return "no cell has both us and a peer"
    worst = min(ratios, key=lambda cell: ratios[cell])
    where = f"{cell_text(*worst)}, {judged[worst].peer}"
    mean = geometric_mean(ratios.values())
    cells = f"{len(ratios)} cell{'s' if len(ratios) > 1 else ''}"
    return f"worst cell {digits(ratios[worst])} ({where}), geometric mean {mean:.2f} over {cells}"


def cell_text(work: Work, size: int) -> str:
    """Returns the name of a cell. Works from torch have one size, which their names imply."""
    return f"{size_text(size)}, {work}" if size and work.transport != "torch" else str(work)


def size_text(size: int) -> str:
    if size >= 1 << 20:
        return f"{size >> 20} MiB" if size % (1 << 20) == 0 else f"{size / 1e6:.0f} MB"
    return f"{size >> 10} KiB" if size >= 1 << 10 and size % (1 << 10) == 0 else f"{size} B"


def value_text(work: Work, value: float) -> str:
    """Returns a value of a row with its unit."""
    return f"{value / 2**20:.1f} MiB" if work.kind == MEMORY else time_text(value)


def time_text(us: float) -> str:
    if us < 100:
        return f"{us:.2f} us" if us < 10 else f"{us:.1f} us"
    return f"{us:.0f} us" if us < 1e4 else f"{us / 1e3:.1f} ms" if us < 1e6 else f"{us / 1e6:.2f} s"


@dataclass
class Document:
    bench: str
    rows: list[Row]
    missing: list[Row]  #: transport, kind, type, np, peer, why
    #: The origin of the rows of a work: transport, kind, type, np; the sizes that were measured
    #: together, the number of rounds, and the `run` of that time.
    origins: list[Row]
    run: Row = field(default_factory=dict)  #: date, machine and command of the present measurement
    path: Path = Path()  #: of the file

    def replace(
        self,
        works: Iterable[Work],
        rows: list[Row],
        missing: list[Row],
        sizes: Collection[int] | None = None,
    ) -> None:
        """Replaces the results of `works` at `sizes`, or at all their sizes, also if the new
        measurement has no number."""
        new = [*rows, *missing]
        anew = dict.fromkeys([*works, *(Work.of(row) for row in new)])

        def stays(row: Row) -> bool:
            return Work.of(row) not in anew or (sizes is not None and row["bytes"] not in sizes)

        self.rows = [row for row in self.rows if stays(row)] + rows
        self.missing = [row for row in self.missing if Work.of(row) not in anew] + missing
        older = [self.left_of(origin, sizes) for origin in self.origins if Work.of(origin) in anew]
        self.origins = [origin for origin in self.origins if Work.of(origin) not in anew]
        self.origins += [origin for origin in older if origin["sizes"]]
        self.origins += [self.origin(work, rows, sizes or ()) for work in anew]

    def left_of(self, origin: Row, sizes: Collection[int] | None) -> Row:
        """Returns an older origin without the sizes that were measured again."""
        left = [size for size in origin["sizes"] if sizes is not None and size not in sizes]
        return {**origin, "sizes": left}

    def origin(self, work: Work, rows: Iterable[Row], sizes: Collection[int]) -> Row:
        """Returns the origin of the new measurement. Limits, and rows of older measurements, do not
        count as rounds."""
        mine = [row for row in rows if Work.of(row) == work and row["peer"] != BEFORE]
        rounds = max((len(row["rounds"]) for row in mine), default=0)
        measured = sorted({*sizes, *(row["bytes"] for row in mine)})
        return {**vars(work), "sizes": measured, "rounds": rounds, **self.run}

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        stored = {name: getattr(self, name) for name in STORED}
        path.write_text(json.dumps(stored, indent=1))


STORED = ("bench", "origins", "missing", "rows")


def load(path: Path) -> Document:
    return Document(**json.loads(path.read_text()), path=path)


#: Options with locations, which do not change what is measured.
NOT_REPEATED = ("--json", "--plot", "--ours", "--before")


def command_line(words: Sequence[str]) -> str:
    """Returns the command to repeat the measurement, without the options in NOT_REPEATED, which
    have one value each."""
    kept = [
        word
        for word, before in zip(words, ["", *words], strict=False)
        if word.split("=")[0] not in NOT_REPEATED and before not in NOT_REPEATED
    ]
    return shlex.join(kept)


def limit(name: str, work: Work, size: int, value: float) -> Row:
    """Returns the row of a bound or a target."""
    values = {"median_us": value, "min_us": value, "rounds": {}}
    return {"peer": name, **vars(work), "bytes": size, **values}


def row_of(peer: str, work: Work, size: int, us: Sequence[float]) -> Row:
    """Returns the row of a contestant that took `us`, one time a round."""
    values = {"median_us": statistics.median(us), "min_us": min(us)}
    rounds = {str(i): value for i, value in enumerate(us, 1)}
    return {"peer": peer, **vars(work), "bytes": size, **values, "rounds": rounds}


def of_before(path: Path | None, rows: Iterable[Row]) -> list[Row]:
    """Returns our rows of an older document, if there is one, in the cells of `rows`."""
    cells = {cell_of(row) for row in rows}
    older = load(path).rows if path else []
    found = [row for row in older if row["peer"] == OURS and cell_of(row) in cells]
    return [{**row, "peer": BEFORE} for row in found]


def document(bench: str, arguments: argparse.Namespace) -> Document:
    """Returns the document of --json, or a new one. Results that are added to it get the present
    date and machine."""
    stored = arguments.json is not None and arguments.json.is_file()
    found = load(arguments.json) if stored else Document(bench, [], [], [])
    found.bench = bench
    found.run = {
        "date": datetime.now().isoformat(" ", "minutes"),
        "revision": machine.revision(),
        "machine": machine.facts(),
        "command": command_line(sys.argv[1:]),
    }
    return found
