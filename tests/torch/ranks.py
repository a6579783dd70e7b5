"""Tests that run on every rank of a real job.

`@on_ranks(1, 2)` makes a test of a function: it runs on all ranks of a job of 1, then of 2
processes, and passes when it passes on all of them. All such tests of one size share a job, since
starting one takes seconds. `run_job` starts a job for a single function: how do jobs end?
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from rank_jobs import Job, launcher, start_job
from rank_jobs import tell as tell

#: A test, or a step of one, that takes longer hangs. Generous: nothing here takes a tenth of it.
WATCHDOG_SECONDS = 30
#: The same for a whole job, should even the watchdog of the ranks fail.
JOB_SECONDS = 600

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

HERE = Path(__file__).parent
Body = tuple[str, str]  # module, function


def is_runnable() -> bool:
    """Whether both the launcher and the native module are there."""
    core = sys.modules.get("horovod._core")
    return launcher() is not None and (core is None or getattr(core, "__file__", None) is not None)


needs_job = pytest.mark.skipif("not __import__('ranks').is_runnable()", reason="not built")


def start(size: int, arguments: list[str], folder: Path, environment: Mapping[str, str]) -> Job:
    return start_job(size, HERE / "rank_main.py", arguments, folder, environment, JOB_SECONDS)


def run_job(size: int, body: Callable[[], None], **environment: str) -> Job:
    """Runs one function of a test module on `size` ranks. It is up to it to call `init`."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["only", body.__module__, body.__name__]
        return start(size, arguments, Path(folder), environment)


bodies: dict[Body, Callable[[], None]] = {}
selected: dict[Size, list[Body]] = {}
outcomes: dict[tuple[Size, Body], str | None] = {}


def on_ranks(*sizes: Any) -> Callable[[Callable[[], None]], Callable[..., None]]:
    """See the top of this file."""

    def decorate(body: Callable[[], None]) -> Callable[..., None]:
        key = (body.__module__, body.__name__)
        bodies[key] = body

        @needs_job
        @pytest.mark.parametrize("np", sizes)
        def test(np: Size) -> None:
            problem = outcome(np, key)
            if problem is not None:
                pytest.fail(problem, pytrace=False)

        test.__name__ = body.__name__
        test.__doc__ = body.__doc__
        test.__module__ = body.__module__
        test.on_ranks = key  # type: ignore[attr-defined]
        return test

    return decorate


def select(items: list[pytest.Item]) -> None:
    """Remembers which tests are wanted, so that one job can run them all."""
    for item in items:
        key = getattr(getattr(item, "function", None), "on_ranks", None)
        if key is not None:
            size = item.callspec.params["np"]  # type: ignore[attr-defined]
            selected.setdefault(size, []).append(key)


def outcome(size: Size, key: Body) -> str | None:
    """None when the test passed on all ranks, else what happened. Runs all tests of this size."""
    wanted = selected.get(size, [key])
    while (size, key) not in outcomes:
        run_bodies(size, [one for one in wanted if (size, one) not in outcomes])
    return outcomes[size, key]


def run_bodies(size: Size, wanted: list[Body]) -> None:
    """Runs tests in one job until the job ends. The one at which it ended has failed."""
    arguments = [f"{module}:{name}" for module, name in wanted]
    environment = NARROW_ENVIRONMENT if size == NARROW else {}
    np = 3 if size == NARROW else int(size)
    with tempfile.TemporaryDirectory() as folder:
        job = start(np, ["all", *arguments], Path(folder), environment)
    for index, key in enumerate(wanted):
        if all(len(told) > index for told in job.told):
            problems = [
                f"rank {rank}:\n{told[index]}"
                for rank, told in enumerate(job.told)
                if told[index] is not None
            ]
            outcomes[size, key] = "\n".join(problems) or None
        else:
            outcomes[size, key] = (
                f"the job ended here with exit code {job.returncode}:\n{job.output[-8000:]}"
            )
            return
