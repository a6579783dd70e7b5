"""Computes ratios from the times of rounds. Pure.

A cell is one kind of work at one size, element type and number of ranks. Its odd rounds choose the
best peer, and its even rounds compare that peer with ours. If the same rounds did both, random
variation would favour the chosen peer. A peer without numbers is not counted.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

BELOW = 0.95  #: a cell with a lower ratio falls short
Rounds = Mapping[int, float]  #: medians of the calls, by number of the round, from 1


@dataclass(frozen=True)
class Verdict:
    ours: float  #: median of our even rounds
    best: float | None  #: the same for the chosen peer; None if no peer has numbers
    peer: str | None

    @property
    def ratio(self) -> float | None:
        """Returns best peer / ours: above 1 if ours is faster."""
        return self.best / self.ours if self.best is not None else None


def median_of(rounds: Rounds, odd: bool) -> float | None:
    """Returns the median over the odd or even rounds, None if there is no such round."""
    values = [value for number, value in rounds.items() if number % 2 == odd]
    return statistics.median(values) if values else None


def judge(ours: Rounds, peers: Mapping[str, Rounds]) -> Verdict | None:
    """Compares a cell. Returns None if ours has no numbers, which is a failure, not a draw."""
    mine = median_of(ours, odd=False)
    if mine is None:
        return None
    most = max(map(len, peers.values()), default=0)
    entered = {
        name: rounds
        for name, rounds in peers.items()
        # A peer that did not continue was measured at a different time than ours.
        if 2 * len(rounds) > most and median_of(rounds, odd=False) is not None
    }
    best = fastest(entered)
    if best is None:
        return Verdict(mine, None, None)
    return Verdict(mine, median_of(entered[best], odd=False), best)


def fastest(entered: Mapping[str, Rounds]) -> str | None:
    """Returns the best peer by the odd rounds, None if there is no odd round."""
    medians = {name: median_of(rounds, odd=True) for name, rounds in entered.items()}
    known = {name: value for name, value in medians.items() if value is not None}
    return min(known, key=lambda name: known[name]) if known else None


def geometric_mean(ratios: Iterable[float]) -> float:
    logarithms = [math.log(ratio) for ratio in ratios]
    return math.exp(statistics.fmean(logarithms)) if logarithms else math.nan


def digits(value: float, limit: float = BELOW) -> str:
    """Formats a ratio with two decimals, or more if needed to show on which side of the limit it
    is."""
    for count in (2, 3, 4):
        text = f"{value:.{count}f}"
        if (float(text) < round(limit, count)) == (value < limit):
            break
    return text
