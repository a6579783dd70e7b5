"""Interleaving: in a round every contestant runs once, ours too, and who begins changes."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.jobs import Ended

TRIES = 2  #: rounds without any number after which a contestant is not asked again


@dataclass
class Contestant:
    name: str
    run: Callable[[], Ended]


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
    for number in range(1, rounds + 1):
        for index in order(len(contestants), number):
            contestant = contestants[index]
            if failures[contestant.name] >= TRIES:
                continue
            tell(f"round {number} of {rounds}: {contestant.name}")
            ended = contestant.run()
            if ended.why:
                failures[contestant.name] += 1
                outcome.missing[contestant.name] = ended.why
            for row in ended.rows:
                outcome.rows.append({"peer": contestant.name, "round": number, **row})
    tell("")
    return outcome


def tell(text: str) -> None:
    """Progress, where somebody sits and watches."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
