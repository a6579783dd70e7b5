"""The contents of the pictures of a benchmark, independent of the format: lines, colours,
labels."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.results import (
    BEFORE,
    BOUND,
    OURS,
    TARGET,
    Row,
    Work,
    is_ours,
    is_peer,
    size_text,
)

#: One more than there are peers over TCP.
COLOURS = (
    *("#4477aa", "#228833", "#aa3377", "#66ccee", "#ccbb44"),
    *("#888888", "#994455", "#44bb99", "#8866cc", "#334455"),
)
OURS_COLOUR, OTHER_OURS_COLOUR = "#ee3311", "#ee9966"

Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Line:
    name: str
    points: Points


def lines_of(rows: Sequence[Row], value: Callable[[Row], float]) -> list[Line]:
    """Returns one line per peer. Ours is last, so that it is drawn on top."""
    names = {row["peer"] for row in rows}
    found = []
    for name in sorted(names, key=lambda name: (name == OURS, name == BOUND, name)):
        mine = sorted((r for r in rows if r["peer"] == name), key=lambda row: row["bytes"])
        found.append(Line(name, [(row["bytes"], value(row)) for row in mine]))
    return found


@dataclass(frozen=True)
class Panel:
    title: str
    lines: list[Line]
    label: Callable[[float], str]  #: the text of a value on the vertical axis

    def sizes(self) -> list[float]:
        return sorted({size for line in self.lines for size, _ in line.points})

    def stretches(self, line: Line) -> list[Points]:
        """Returns the points of one of `lines`, split at sizes that only other lines have."""
        values = dict(line.points)
        runs = itertools.groupby(self.sizes(), lambda size: size in values)
        return [[(size, values[size]) for size in run] for is_there, run in runs if is_there]


def panels_of(work: Work, rows: Sequence[Row]) -> list[Panel]:
    """Returns two panels of `rows`, all of one kind of work: time, and bytes per second."""
    latency = lines_of(rows, lambda row: row["median_us"])
    rate = lines_of(rows, lambda row: row["bytes"] / row["median_us"] / 1e3)
    return [
        Panel(f"{work}: time", latency, time_label),
        Panel("size / time", rate, rate_text),
    ]


def colours_of(rows: Sequence[Row]) -> dict[str, str]:
    names = sorted({row["peer"] for row in rows if is_peer(row["peer"])})
    colours = {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(names)}
    fixed = {BOUND: "#000000", TARGET: "#000000", BEFORE: "#bbbbbb", OURS: OURS_COLOUR}
    other = {row["peer"]: OTHER_OURS_COLOUR for row in rows if is_ours(row["peer"])}
    return {**colours, **other, **fixed}


def has_curves(rows: Sequence[Row]) -> bool:
    """Returns whether some work was measured at enough sizes for a curve."""
    sizes: dict[Work, set[int]] = {}
    for row in rows:
        sizes.setdefault(Work.of(row), set()).add(row["bytes"])
    return any(len(found) >= 3 for found in sizes.values())


def rate_text(value: float) -> str:
    return f"{value:g} GB/s"


def time_label(us: float) -> str:
    for unit, name in ((1e6, "s"), (1e3, "ms")):
        if us >= unit:
            return f"{us / unit:g} {name}"
    return f"{us:g} us"


def size_label(size: float) -> str:
    """Returns a short label, since large sizes are close to each other on the axis."""
    return size_text(int(size)).replace("iB", "").replace(" ", "")
