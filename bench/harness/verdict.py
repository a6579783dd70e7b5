"""From the times of rounds to ratios. Pure.

A cell is one kind of work at one size, element type and number of ranks. Which peer is best in a
cell is decided by its odd rounds, and how it compares with us by the even ones: chosen and judged
by the same numbers, the luckiest peer would look better than it is. A peer that has no numbers is
neither chosen nor beaten.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

BELOW = 0.95  #: a ratio below this is a cell that falls short
Rounds = Mapping[int, float]  #: number of the round, from 1, to the median of its calls


@dataclass(frozen=True)
class Verdict:
    ours: float  #: median of our even rounds
    best: float | None  #: that of the peer that was chosen; None where no peer has numbers
    peer: str | None

    @property
    def ratio(self) -> float | None:
        """Above 1: we are faster."""
        return self.best / self.ours if self.best is not None else None


def median_of(rounds: Rounds, odd: bool) -> float | None:
    """None where there is no such round."""
    values = [value for number, value in rounds.items() if number % 2 == odd]
    return statistics.median(values) if values else None


def judge(ours: Rounds, peers: Mapping[str, Rounds]) -> Verdict | None:
    """None where we have no numbers ourselves, which is a failure and never a draw."""
    mine = median_of(ours, odd=False)
    if mine is None:
        return None
    most = max(map(len, peers.values()), default=0)
    entered = {
        name: rounds
        for name, rounds in peers.items()
        # Who was left behind on the way would be judged by other minutes than we are.
        if 2 * len(rounds) > most and median_of(rounds, odd=False) is not None
    }
    best = fastest(entered)
    if best is None:
        return Verdict(mine, None, None)
    return Verdict(mine, median_of(entered[best], odd=False), best)


def fastest(entered: Mapping[str, Rounds]) -> str | None:
    """Who is chosen: by the odd rounds, of which one at least must be there."""
    medians = {name: median_of(rounds, odd=True) for name, rounds in entered.items()}
    known = {name: value for name, value in medians.items() if value is not None}
    return min(known, key=lambda name: known[name]) if known else None


def geometric_mean(ratios: Iterable[float]) -> float:
    logarithms = [math.log(ratio) for ratio in ratios]
    return math.exp(statistics.fmean(logarithms)) if logarithms else math.nan


def digits(value: float, limit: float = BELOW) -> str:
    """Two behind the point, or as many as show on which side of the limit it lies."""
    for count in (2, 3, 4):
        text = f"{value:.{count}f}"
        if (float(text) < round(limit, count)) == (value < limit):
            break
    return text
