"""Derives the value of a goal per cell from rows; larger is better."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.results import (
    OURS,
    TARGET,
    Row,
    Work,
    cell_of,
    is_peer,
    rounds_of,
    time_text,
    value_text,
    variants,
    verdicts,
)
from harness.verdict import fastest

MPIS = ("Open MPI", "MPICH", "Intel MPI")
WITHOUT, AGAIN = "without us", "without us, again"  #: two runs of the same step

Cell = tuple[Work, int]


@dataclass(frozen=True)
class Reading:
    value: float
    text: str = ""  #: shown instead of the value, if not empty
    limit_text: str = ""  #: the limit as text


Read = Callable[[Sequence[Row]], dict[Cell, Reading]]


def ratios(rows: Sequence[Row], ours: str = OURS) -> dict[Cell, Reading]:
    """Returns best peer / ours. A cell without a peer has no value."""
    judged = verdicts(rows, ours).items()
    return {cell: Reading(found.ratio) for cell, found in judged if found.ratio is not None}


def best_ratios(rows: Sequence[Row]) -> dict[Cell, Reading]:
    """Returns best peer / our fastest way, which the odd rounds choose, like the best peer."""
    ways = {ours: ratios(rows, ours) for ours in (OURS, *variants(rows))}
    best = {}
    for cell, named in by_name(rows).items():
        entered = {ours: rounds_of(named[ours]) for ours in ways if cell in ways[ours]}
        if chosen := fastest(entered):
            best[cell] = ways[chosen][cell]
    return best


def ratios_to_mpi(rows: Sequence[Row]) -> dict[Cell, Reading]:
    """Returns best MPI / ours."""
    return ratios([r for r in rows if not is_peer(r["peer"]) or r["peer"].startswith(MPIS)])


def by_name(rows: Sequence[Row]) -> dict[Cell, dict[str, Row]]:
    found: dict[Cell, dict[str, Row]] = {}
    for row in rows:
        found.setdefault(cell_of(row), {})[row["peer"]] = row
    return found


def shares_of(name: str) -> Read:
    """Returns a reading of the time of `name` / ours."""

    def read(rows: Sequence[Row]) -> dict[Cell, Reading]:
        return {
            cell: Reading(named[name]["median_us"] / named[OURS]["median_us"])
            for cell, named in by_name(rows).items()
            if {name, OURS} <= named.keys()
        }

    return read


def targets(rows: Sequence[Row]) -> dict[Cell, Reading]:
    """Returns target / ours, with our time or bytes and the target as text."""
    found = {}
    for cell, named in by_name(rows).items():
        if {TARGET, OURS} <= named.keys():
            most, ours = named[TARGET]["median_us"], named[OURS]["median_us"]
            text, limit_text = (value_text(cell[0], value) for value in (ours, most))
            found[cell] = Reading(most / ours, text, f"at most {limit_text}")
    return found


def worst_targets(rows: Sequence[Row]) -> dict[Cell, Reading]:
    """Returns target / ours like `targets`, but of our slowest round."""
    slowest = [
        {**row, "median_us": max(row["rounds"].values())} if row["peer"] == OURS else row
        for row in rows
    ]
    return targets(slowest)


def within_spread(rows: Sequence[Row]) -> dict[Cell, Reading]:
    """Compares the time that Horovod adds to a step with the difference between two runs without
    Horovod. Both are medians of differences within a round, since the machine changes between
    rounds."""
    found = {}
    for cell, named in by_name(rows).items():
        if not {OURS, WITHOUT, AGAIN} <= named.keys():
            continue
        ours, one, other = (named[name]["rounds"] for name in (OURS, WITHOUT, AGAIN))
        if not (common := ours.keys() & one.keys() & other.keys()):
            continue
        alone = {n: (one[n] + other[n]) / 2 for n in common}
        without = statistics.median(alone.values())
        added = statistics.median(ours[n] - alone[n] for n in common)
        spread = statistics.median(abs(one[n] - other[n]) for n in common)
        text = f"{added:+.2f} us, on {time_text(without)}"
        limit_text = f"at most {spread:+.2f} us, as between two runs without us"
        found[cell] = Reading((without + spread) / (without + added), text, limit_text)
    return found
