"""Tests that run on every rank of a real job.

`@on_ranks(1, 2)` makes a test of a function: it runs on all ranks of a job of 1, then of 2
processes, and passes when it passes on all of them. All such tests of one size share processes,
since starting them takes seconds. Those about `init` share some too: `@on_ranks(2, fresh=True)`.
`run_alone` runs a single function in new processes of a job that other tests use too. `run_job`
starts a job for a single function: what does the launcher do?
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from rank_jobs import Job, Outcome, launcher, outcomes_of, start_job
from rank_jobs import tell as tell
from shared_jobs import SharedJobs, name_as
from warm_jobs import Kind, run_warm

#: A test, or a step of one, that takes longer hangs. Generous: suites share the cores, and several
#: ranks that import torch at once take 20 s then.
WATCHDOG_SECONDS = 120
#: The same for a whole job, should even the watchdog of the ranks fail.
JOB_SECONDS = 1200

#: A job of 3 as if on three hosts, where everything that has a limit is beyond it.
NARROW = "3, narrow"
NARROW_ENVIRONMENT = {
    "HOROVOD_TRANSPORT": "tcp",
    "HOROVOD_CACHE_CAPACITY": "4",
    "HOROVOD_FUSION_THRESHOLD": "4096",
}
Size = int | str
#: More ranks than cores, and no power of two; only in long runs.
MANY = pytest.param(7, marks=pytest.mark.slow)

SCRIPT = Path(__file__).parent / "rank_main.py"
Body = tuple[str, str]  # module, function


def is_runnable() -> bool:
    """Whether both the launcher and the native module are there."""
    core = sys.modules.get("horovod._core")
    return launcher() is not None and (core is None or getattr(core, "__file__", None) is not None)


needs_job = pytest.mark.skipif("not __import__('ranks').is_runnable()", reason="not built")


def run_job(size: int, body: Callable[[], None], **environment: str) -> Job:
    """Runs one function of a test module on `size` ranks of a job of its own. It is up to it to
    call `init`."""
    with tempfile.TemporaryDirectory() as folder:
        return start_job(size, SCRIPT, only(body), Path(folder), environment, JOB_SECONDS)


def run_alone(size: int, body: Callable[[], None], **environment: str) -> Job:
    """The same in processes that do nothing else, forked from ranks that have imported torch, in
    much less CPU time. The launcher knows nothing of their end."""
    return run_warm(Kind(SCRIPT, size), only(body), JOB_SECONDS, environment)


def only(body: Callable[[], None]) -> list[str]:
    return ["only", body.__module__, body.__name__]


bodies: dict[Body, Callable[[], None]] = {}


def on_ranks(
    *sizes: Any, fresh: bool = False
) -> Callable[[Callable[[], None]], Callable[..., None]]:
    """See the top of this file. `fresh`: it is up to the function to call `init`; what it has not
    shut down is shut down when all ranks are through."""

    def decorate(body: Callable[[], None]) -> Callable[..., None]:
        key = (body.__module__, body.__name__)
        bodies[key] = body

        @needs_job
        @pytest.mark.parametrize("np", sizes)
        def test(np: Size, request: pytest.FixtureRequest) -> None:
            jobs.report((np, fresh), key, request)

        name_as(body, test)
        test.on_ranks = (fresh, key)  # type: ignore[attr-defined]
        return test

    return decorate


def select(items: list[pytest.Item]) -> None:
    """Remembers which tests are wanted, so that one job can run them all."""
    for item in items:
        wanted = getattr(getattr(item, "function", None), "on_ranks", None)
        skips = [mark.args[0] for mark in item.iter_markers("skipif")]
        if wanted is not None and True not in skips:
            fresh, key = wanted
            jobs.select((item.callspec.params["np"], fresh), key)  # type: ignore[attr-defined]


def run_bodies(kind: tuple[Size, bool], wanted: Sequence[Body]) -> dict[Body, Outcome]:
    """Runs tests in the same processes until these end."""
    size, fresh = kind
    arguments = [f"{module}:{name}" for module, name in wanted]
    environment = NARROW_ENVIRONMENT if size == NARROW else {}
    np = 3 if size == NARROW else int(size)
    how = "fresh" if fresh else "all"
    job = run_warm(Kind(SCRIPT, np), [how, *arguments], JOB_SECONDS, environment)
    return outcomes_of(job, wanted)


jobs = SharedJobs(run_bodies)
