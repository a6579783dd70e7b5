"""Tests that run on every rank of a real job; starting TensorFlow takes seconds, so few jobs.

`@on_ranks(1, 2)` makes a test of a function: it runs on all ranks of a job of 1, then of 2
processes, and passes when it passes on all of them. All tests of one size and one `env` share a
job. `run_job` starts a job for a single function: how do jobs end?
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from rank_jobs import Job, launcher, start_job
from rank_jobs import tell as tell

#: A test that takes longer hangs. Tracing and compiling on busy cores takes a while.
WATCHDOG_SECONDS = 120
JOB_SECONDS = 900
HERE = Path(__file__).parent

Environment = tuple[tuple[str, str], ...]
Key = tuple[str, str, Environment]  # module, function, environment
EVERYWHERE = (1, 2, 4)


def start(size: int, arguments: list[str], folder: Path, environment: Mapping[str, str]) -> Job:
    return start_job(size, HERE / "tf_rank_main.py", arguments, folder, environment, JOB_SECONDS)


def run_job(size: int, body: Callable[[], None], **environment: str) -> Job:
    """Runs one function of a test module on `size` ranks. It is up to it to call `init`."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["only", body.__module__, body.__name__]
        return start(size, arguments, Path(folder), environment)


bodies: dict[tuple[str, str], Callable[[], None]] = {}
selected: dict[tuple[int, Environment], list[Key]] = {}
outcomes: dict[tuple[int, Key], str | None] = {}


def on_ranks(*sizes: Any, **env: str) -> Callable[[Callable[[], None]], Callable[..., None]]:
    """See the top of this file."""
    return on_jobs(sizes, [pytest.param(tuple(sorted(env.items())), id=pytest.HIDDEN_PARAM)])


def on_jobs(sizes: Any, environments: Any) -> Callable[[Callable[[], None]], Callable[..., None]]:
    """`on_ranks` in several environments, which are params of pytest."""

    def decorate(body: Callable[[], None]) -> Callable[..., None]:
        where = (body.__module__, body.__name__)
        bodies[where] = body

        @pytest.mark.skipif(launcher() is None, reason="not built")
        @pytest.mark.parametrize("env", environments)
        @pytest.mark.parametrize("np", sizes)
        def test(np: int, env: Environment) -> None:
            problem = outcome(np, (*where, env))
            if problem == "skipped":
                pytest.skip("not with these versions")
            if problem is not None:
                pytest.fail(problem, pytrace=False)

        test.__name__ = body.__name__
        test.__doc__ = body.__doc__
        test.__module__ = body.__module__
        test.on_ranks = where  # type: ignore[attr-defined]
        return test

    return decorate


def select(items: list[pytest.Item]) -> None:
    """Remembers which tests are wanted, so that one job can run them all."""
    for item in items:
        where = getattr(getattr(item, "function", None), "on_ranks", None)
        if where is not None:
            params = item.callspec.params  # type: ignore[attr-defined]
            key = (*where, params["env"])
            selected.setdefault((params["np"], key[2]), []).append(key)


def outcome(size: int, key: Key) -> str | None:
    """None when the test passed on all ranks, else what happened. Runs all tests of its job."""
    wanted = selected.get((size, key[2]), [key])
    while (size, key) not in outcomes:
        run_bodies(size, [one for one in wanted if (size, one) not in outcomes])
    return outcomes[size, key]


def run_bodies(size: int, wanted: list[Key]) -> None:
    """Runs tests in one job until the job ends. The one at which it ended has failed."""
    arguments = [f"{module}:{name}" for module, name, _ in wanted]
    with tempfile.TemporaryDirectory() as folder:
        job = start(size, ["all", *arguments], Path(folder), dict(wanted[0][2]))
    for index, key in enumerate(wanted):
        if not all(len(told) > index for told in job.told):
            outcomes[size, key] = (
                f"the job ended here with exit code {job.returncode}:\n{job.output[-8000:]}"
            )
            return
        told = [told[index] for told in job.told]
        problems = [f"rank {rank}:\n{what}" for rank, what in enumerate(told) if what is not None]
        skipped = told and all(what == "skipped" for what in told)
        outcomes[size, key] = "skipped" if skipped else "\n".join(problems) or None
