"""Tests that run on every rank of a real job. Their processes are forked from ranks that have
imported MXNet.

`@on_ranks(1, 2)` makes a test of a function: it runs on all ranks of a job of 1, then of 2
processes, and passes when it passes on all of them. All tests of one size share processes.
`run_alone` runs a single function in processes of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from rank_jobs import Job, Outcome, launcher, outcomes_of
from rank_jobs import tell as tell
from shared_jobs import SharedJobs, name_as
from warm_jobs import Kind, run_warm

WATCHDOG_SECONDS = 120
JOB_SECONDS = 900
SCRIPT = Path(__file__).parent / "mx_rank_main.py"
EVERYWHERE = (1, 2, 3)

Key = tuple[str, str]  # module, function
bodies: dict[Key, Callable[[], None]] = {}


def run_alone(size: int, body: Callable[[], None], **at_import: str) -> Job:
    """Runs one function of a test module on `size` ranks. It is up to it to call `init`.

    `at_import`: variables that MXNet reads when it is imported.
    """
    arguments = ["only", body.__module__, body.__name__]
    return fork(Kind(SCRIPT, size, tuple(at_import.items())), arguments)


def fork(kind: Kind, arguments: list[str]) -> Job:
    return run_warm(kind, arguments, JOB_SECONDS, {})


def on_ranks(*sizes: int) -> Callable[[Callable[[], None]], Callable[..., None]]:
    """See the top of this file."""

    def decorate(body: Callable[[], None]) -> Callable[..., None]:
        key = (body.__module__, body.__name__)
        bodies[key] = body

        @pytest.mark.skipif(launcher() is None, reason="not built")
        @pytest.mark.parametrize("np", sizes)
        def test(np: int, request: pytest.FixtureRequest) -> None:
            jobs.report(np, key, request)

        name_as(body, test)
        test.on_ranks = key  # type: ignore[attr-defined]
        return test

    return decorate


def select(items: list[pytest.Item]) -> None:
    """Remembers which tests are wanted, so that one job can run them all."""
    for item in items:
        key = getattr(getattr(item, "function", None), "on_ranks", None)
        if key is not None:
            jobs.select(item.callspec.params["np"], key)  # type: ignore[attr-defined]


def run_bodies(size: int, wanted: Sequence[Key]) -> dict[Key, Outcome]:
    """Runs tests in the same processes until these end."""
    arguments = ["all", *(f"{module}:{name}" for module, name in wanted)]
    job = fork(Kind(SCRIPT, size), arguments)
    return outcomes_of(job, wanted)


jobs: SharedJobs[Any, Any] = SharedJobs(run_bodies)
