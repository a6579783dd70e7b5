"""Interleaves contestants: each runs once per round, including ours, in changing order.

After TRIALS rounds, a cell continues only with contestants that can still be its best peer. The
other contestants keep their results, but are not compared with ours.
"""

from __future__ import annotations

import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.jobs import Ended

TRIES = 2  #: failed rounds after which a contestant is not started again
TRIALS = 3  #: rounds of all contestants
HOPELESS = 1.5  #: slower than the best peer by this factor: more than rounds differ

Sizes = Collection[int]


@dataclass
class Contestant:
    name: str
    #: runs it once, at these sizes of its sizes; None: at all
    run: Callable[[Sizes | None], Ended]
    always: bool = False  #: continues in every cell


@dataclass
class Outcome:
    """The result of the rounds. `rows`: as the jobs printed them, with `peer` and `round`."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)  #: by contestant: the reason of its gaps


def order(count: int, number: int) -> list[int]:
    """Returns the order in round `number`. The first contestant, and the predecessor of each,
    change in every round (a balanced Latin square: Williams, 1949)."""
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
    """Returns, by peer, the sizes at which it can still be the best."""
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
    """Prints progress on a terminal."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
