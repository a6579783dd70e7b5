"""Waits for runs in which the cores are close to each other, so that times are comparable.

The hypervisor may place the cores of a virtual machine on one chiplet or on two, which multiplies
the time of signals between cores (docs/decisions/0025). So a run waits until a signal takes about
as long as the fastest one so far. It is repeated if this no longer holds at its end. A benchmark
limits the time spent on this, and then accepts any placement.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import replace

from harness import bounds
from harness.jobs import Ended
from harness.rounds import Contestant, Sizes

APART = 2.5  #: signals slower by this factor than the fastest one cross chiplets
PATIENCE = 0.5  #: seconds of waiting and repeating per second of running ...
LEAST_PATIENCE_S = 20  #: ... plus this, for the first runs
LOOK_S = 0.5


class Placement:
    """The placement of this machine's cores during one benchmark."""

    def __init__(
        self, signal_us: Callable[[], float | None], sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.signal_us = signal_us
        self.sleep = sleep
        self.quickest_us = float("inf")
        self.spent_s = 0.0
        self.patience_s = float(LEAST_PATIENCE_S)

    def held(self, contestant: Contestant) -> Contestant:
        """Returns `contestant` wrapped so that it runs while the cores are close to each other."""
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
        """Returns whether the cores are apart. False if that cannot be determined."""
        now_us = self.signal_us()
        if now_us is None:
            return False
        self.quickest_us = min(self.quickest_us, now_us)
        return now_us > APART * self.quickest_us


@functools.cache
def here() -> Placement:
    """Returns the only instance, so that all works of a benchmark use the same reference."""
    return Placement(bounds.signal_us)
