"""Runs are compared that found the cores equally far apart.

The host of a virtual machine may move its cores: on one chiplet in this minute and on two in the
next, where all that goes from one core to another takes two to five times as long
(docs/decisions/0025). So a run waits until a signal takes about as long as the quickest that was
seen, and is repeated where it does not at its end. A bench spends no more than 20 seconds, a last
repetition and half as much time on that as on its runs; then it takes what it gets.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import replace

from harness import bounds
from harness.jobs import Ended
from harness.rounds import Contestant, Sizes

APART = 2.5  #: times the quickest signal: on one chiplet they differ by 2, between two by 3 to 5
PATIENCE = 0.5  #: seconds of waiting and repeating for one of running ...
LEAST_PATIENCE_S = 20  #: ... and so many more, for the first runs
LOOK_S = 0.5


class Placement:
    """Of the cores of this machine, as long as one bench runs."""

    def __init__(
        self, signal_us: Callable[[], float | None], sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.signal_us = signal_us
        self.sleep = sleep
        self.quickest_us = float("inf")
        self.spent_s = 0.0
        self.patience_s = float(LEAST_PATIENCE_S)

    def held(self, contestant: Contestant) -> Contestant:
        """`contestant`, whose runs are with cores near each other."""
        return replace(contestant, run=lambda only: self.run(contestant, only))

    def run(self, contestant: Contestant, only: Sizes | None) -> Ended:
        self.wait_until_near()
        ended = contestant.run(only)
        self.patience_s += PATIENCE * ended.seconds
        while self.spent_s < self.patience_s and self.are_apart():
            self.spent_s += ended.seconds
            self.wait_until_near()
            ended = contestant.run(only)
        return ended

    def wait_until_near(self) -> None:
        while self.are_apart() and self.spent_s < self.patience_s:
            self.sleep(LOOK_S)
            self.spent_s += LOOK_S

    def are_apart(self) -> bool:
        """Not where that cannot be told."""
        now_us = self.signal_us()
        if now_us is None:
            return False
        self.quickest_us = min(self.quickest_us, now_us)
        return now_us > APART * self.quickest_us


@functools.cache
def here() -> Placement:
    """One for all works of a bench, so that each knows how near the cores have been."""
    return Placement(bounds.signal_us)
