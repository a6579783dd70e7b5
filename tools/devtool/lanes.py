"""Runs suites in parallel: as many as there are lanes, each once its build is done."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from devtool.builds import BUILDS
from devtool.counts import Count
from devtool.process import Failed, done_step, say, side_by_side
from devtool.suites import Suite

#: A single suite leaves cores idle while its processes start, wait and end. Two suites use them.
#: Three make each suite slower, and bring tests close to their deadlines.
LANES = 2


class Builds:
    """Builds the needs of suites one after another in a thread, while suites whose build is done
    run."""

    def __init__(self, suites: Sequence[Suite], worker: ThreadPoolExecutor) -> None:
        needs = dict.fromkeys(suite.needs for suite in suites)
        self._builds = {need: worker.submit(self._build, need) for need in needs}

    def __getitem__(self, need: str) -> Future[bool]:
        """Waits for `need`. Returns whether it was built."""
        return self._builds[need]

    @staticmethod
    def _build(need: str) -> bool:
        try:
            say(done_step(f"built {need}", BUILDS[need]))
        except Failed as reason:
            say(f"  {need} could not be built: {reason}")
            return False
        return True


@dataclass(frozen=True)
class Ran:
    """The result of a suite. `minutes` is wall-clock time."""

    count: Count
    minutes: float

    def line(self, name: str) -> str:
        count = self.count
        skipped = f", {count.skipped} skipped" if count.skipped else ""
        time_taken = f"{self.minutes:6.1f} min{count.core_seconds / 60:6.1f} core min"
        return f"  {name:<14}{time_taken}  {count.passed} passed, {count.failed} failed{skipped}"


def run_suites(suites: Sequence[Suite]) -> Count:
    """Runs all suites; prints the minutes of each and all failures."""
    with side_by_side(1) as worker, side_by_side(LANES) as lanes:
        results = run_in_lanes(suites, Builds(suites, worker), lanes)
    total = Count()
    say("\nsuites")
    for suite in suites:
        say(results[suite.name].line(suite.name))
        total.add(results[suite.name].count)
    for reason, cases in total.reasons.items():
        say(f"  skipped: {cases}: {reason}")
    for failure in total.failures:
        say(f"  failed: {failure}")
    return total


def run_in_lanes(
    suites: Sequence[Suite], builds: Builds, lanes: ThreadPoolExecutor
) -> dict[str, Ran]:
    """A free lane takes the first suite in order whose build is done."""
    waiting = list(suites)
    running: dict[Future[Ran], Suite] = {}
    results: dict[str, Ran] = {}
    while waiting or running:
        while len(running) < LANES and (suite := next_suite(waiting, builds)) is not None:
            waiting.remove(suite)
            running[lanes.submit(run_suite, suite, builds[suite.needs].result())] = suite
        watched: set[Future[Any]] = set(running)
        if len(running) < LANES:
            watched |= {builds[suite.needs] for suite in waiting}
        ended, _ = wait(watched, return_when=FIRST_COMPLETED)
        for future in ended & running.keys():
            results[running.pop(future).name] = future.result()
    return results


def next_suite(waiting: Sequence[Suite], builds: Builds) -> Suite | None:
    return next((suite for suite in waiting if builds[suite.needs].done()), None)


def run_suite(suite: Suite, is_built: bool) -> Ran:
    say(f"{suite.name}: {suite.what}")
    begin = time.monotonic()
    count = Count()
    try:
        if is_built:
            count = suite.run()
        else:
            count.fail(f"{suite.name}: did not build")
    except Failed as reason:
        count.fail(f"{suite.name}: {reason}")
    ran = Ran(count, (time.monotonic() - begin) / 60)
    say(ran.line(suite.name))
    return ran
