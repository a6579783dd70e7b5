"""What a bench leaves behind: rows, one a peer and cell, in a JSON file that can be added to."""

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
BOUND = "bound"  #: the peer that is physics
TARGET = "target"  #: what we want to stay below
BEFORE = "before"  #: an older version of ours
OURS_FLOAT32 = "ours, float32"  #: in tables of other types, at the same bytes
MEMORY = "memory"  #: the kind whose numbers are bytes of memory in place of microseconds

Row = dict[str, Any]


@dataclass(frozen=True, order=True)
class Work:
    """What the sizes of one table have in common."""

    transport: str
    kind: str
    type: str
    np: int

    @staticmethod
    def of(row: Row) -> Work:
        return Work(row["transport"], row["kind"], row["type"], row["np"])

    def on(self, machine: str | None) -> Work:
        """The same on a machine that goes by a name; None: on the usual ones."""
        return replace(self, transport=f"{self.transport}, {machine}") if machine else self

    def __str__(self) -> str:
        return f"{self.kind} {self.type}, np {self.np}, {self.transport}"


def is_ours(name: str) -> bool:
    """Ours, and other ways of using us: `ours, in one group`."""
    return name == OURS or name.startswith(OURS + ", ")


def is_peer(name: str) -> bool:
    return not is_ours(name) and name not in (BOUND, TARGET, BEFORE)


def variants(rows: Iterable[Row]) -> list[str]:
    """The other ways of using us that are compared with peers, too."""
    names = dict.fromkeys(row["peer"] for row in rows)
    return [name for name in names if is_ours(name) and name not in (OURS, OURS_FLOAT32)]


def cell_of(row: Row) -> tuple[Work, int]:
    return Work.of(row), row["bytes"]


def rounds_of(row: Row) -> dict[int, float]:
    """Names in JSON are texts."""
    return {int(number): value for number, value in row["rounds"].items()}


def collapse(outcome: Outcome) -> list[Row]:
    """One row a peer and cell, with the medians of its rounds. A wrong result in one of them is a
    gap: not every round is looked at."""
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
    """Every cell in which we have times, in that way of using us; memory has its target."""
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
    """Works from torch have one size, which their names imply."""
    return f"{size_text(size)}, {work}" if size and work.transport != "torch" else str(work)


def size_text(size: int) -> str:
    if size >= 1 << 20:
        return f"{size >> 20} MiB" if size % (1 << 20) == 0 else f"{size / 1e6:.0f} MB"
    return f"{size >> 10} KiB" if size >= 1 << 10 and size % (1 << 10) == 0 else f"{size} B"


def value_text(work: Work, value: float) -> str:
    """A number of a row, with its unit."""
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
    #: Whence the rows of a work are: transport, kind, type, np; the sizes that were measured
    #: together, in how many rounds; and what `run` was then.
    origins: list[Row]
    run: Row = field(default_factory=dict)  #: date, machine and command of what is measured now
    path: Path = Path()  #: where it is stored

    def replace(
        self,
        works: Iterable[Work],
        rows: list[Row],
        missing: list[Row],
        sizes: Collection[int] | None = None,
    ) -> None:
        """`works` were measured anew, at `sizes` or at all that they have: what was known of these
        is dropped, also where nobody has a number now."""
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
        """An older origin without the sizes that were measured anew."""
        left = [size for size in origin["sizes"] if sizes is not None and size not in sizes]
        return {**origin, "sizes": left}

    def origin(self, work: Work, rows: Iterable[Row], sizes: Collection[int]) -> Row:
        """Of what was measured now; rows of another time and limits have no rounds of this one."""
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


#: Options that say where things are, and not what was measured.
NOT_REPEATED = ("--json", "--plot", "--ours", "--before")


def command_line(words: Sequence[str]) -> str:
    """What somebody else would type: one value an option is left out with it."""
    kept = [
        word
        for word, before in zip(words, ["", *words], strict=False)
        if word.split("=")[0] not in NOT_REPEATED and before not in NOT_REPEATED
    ]
    return shlex.join(kept)


def limit(name: str, work: Work, size: int, value: float) -> Row:
    """What is no contestant and stands in the table: a bound, or a target."""
    values = {"median_us": value, "min_us": value, "rounds": {}}
    return {"peer": name, **vars(work), "bytes": size, **values}


def of_before(path: Path | None, rows: Iterable[Row]) -> list[Row]:
    """Our own of an older document, if there is one, in the cells of `rows`."""
    cells = {cell_of(row) for row in rows}
    older = load(path).rows if path else []
    found = [row for row in older if row["peer"] == OURS and cell_of(row) in cells]
    return [{**row, "peer": BEFORE} for row in found]


def document(bench: str, arguments: argparse.Namespace) -> Document:
    """That of --json, or a new one; what is added to it is of today and of this machine."""
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
