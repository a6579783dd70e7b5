"""Interleaving: in a round every contestant runs once, ours too, and who begins changes.

After some rounds, only those go on in a cell that could still be the best peer there. The others
keep the numbers that they have: nobody is chosen or judged by rounds that they would add.
"""

from __future__ import annotations

import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.jobs import Ended

TRIES = 2  #: rounds without any number after which a contestant is not asked again
TRIALS = 3  #: rounds after which only those go on that could be best
HOPELESS = 1.5  #: times as slow as the best peer, by the median of these: not what rounds differ by

Sizes = Collection[int]


@dataclass
class Contestant:
    name: str
    #: once, with these sizes of those that it has; None: with all
    run: Callable[[Sizes | None], Ended]
    always: bool = False  #: goes on in every cell


@dataclass
class Outcome:
    """What the rounds brought: rows as the jobs printed them, each with `peer` and `round`."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)  #: contestant to why it has gaps


def order(count: int, number: int) -> list[int]:
    """Who runs when in round `number`. Every round someone else begins, and each follows someone
    else than in the round before (a balanced Latin square: Williams, 1949)."""
    zigzag = [(step + 1) // 2 * (1 if step % 2 else -1) for step in range(count)]
    return [(number + offset) % count for offset in zigzag]


def run_rounds(contestants: Sequence[Contestant], rounds: int) -> Outcome:
    outcome = Outcome()
    failures: dict[str, int] = defaultdict(int)
    hopeful: dict[str, set[int]] | None = None
    for number in range(1, rounds + 1):
        for index in order(len(contestants), number):
            contestant = contestants[index]
            sizes = None
            if hopeful is not None and not contestant.always:
                sizes = hopeful.get(contestant.name, set())
            if failures[contestant.name] >= TRIES or sizes == set():
                continue
            tell(f"round {number} of {rounds}: {contestant.name}")
            ended = contestant.run(sizes)
            if ended.why:
                failures[contestant.name] += 1
                outcome.missing[contestant.name] = ended.why
            for row in ended.rows:
                outcome.rows.append({"peer": contestant.name, "round": number, **row})
        if number == TRIALS:
            always = [contestant.name for contestant in contestants if contestant.always]
            hopeful = contenders(row for row in outcome.rows if row["peer"] not in always)
    tell("")
    return outcome


def contenders(rows: Iterable[dict[str, Any]]) -> dict[str, set[int]]:
    """By peer: the sizes at which it could be the best."""
    times: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in (row for row in rows if row.get("correct", True)):
        times[row["bytes"]][row["peer"]].append(row["median_us"])
    found: dict[str, set[int]] = defaultdict(set)
    for size, peers in times.items():
        medians = {peer: statistics.median(values) for peer, values in peers.items()}
        for peer, median in medians.items():
            if median <= HOPELESS * min(medians.values()):
                found[peer].add(size)
    return found


def tell(text: str) -> None:
    """Progress, where somebody sits and watches."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
