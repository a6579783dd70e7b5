"""Tests that run on every rank of a real job; starting TensorFlow takes seconds, so few jobs.

`@on_ranks(1, 2)` makes a test of a function: it runs on all ranks of a job of 1, then of 2
processes, and passes when it passes on all of them. All tests of one size and one `env` share
processes. `run_alone` runs a single function in new processes of a job that other tests use too.
`run_job` starts a job for a single function: what does the launcher do?
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from rank_jobs import Job, Outcome, launcher, outcomes_of, start_job
from rank_jobs import tell as tell
from shared_jobs import SharedJobs, name_as
from slim import slim
from warm_jobs import Kind, run_warm

#: A test that takes longer hangs. Tracing and compiling on busy cores takes a while.
WATCHDOG_SECONDS = 120
#: The same for a whole job, which runs more than a hundred tests.
JOB_SECONDS = 2400
SCRIPT = Path(__file__).parent / "tf_rank_main.py"

Environment = tuple[tuple[str, str], ...]
Key = tuple[str, str, Environment]  # module, function, environment
EVERYWHERE = (1, 2, 4)


def run_job(size: int, body: Callable[[], None], **environment: str) -> Job:
    """Runs one function of a test module on `size` ranks of a job of its own. It is up to it to
    call `init`."""
    return start(size, only(body), environment)


def run_alone(size: int, body: Callable[[], None], **environment: str) -> Job:
    """The same in processes that do nothing else, forked from ranks that have imported TensorFlow,
    in much less CPU time. The launcher knows nothing of their end."""
    return fork(size, only(body), environment)


def only(body: Callable[[], None]) -> list[str]:
    return ["only", body.__module__, body.__name__]


def start(size: int, arguments: list[str], environment: Mapping[str, str]) -> Job:
    with tempfile.TemporaryDirectory() as folder:
        return start_job(size, SCRIPT, arguments, Path(folder), slim(environment), JOB_SECONDS)


def fork(size: int, arguments: list[str], environment: Mapping[str, str]) -> Job:
    """Forks the processes of a job, unless its Keras has a backend with threads of its own."""
    if "KERAS_BACKEND" in environment:
        return start(size, arguments, environment)
    ours = {name: value for name, value in environment.items() if name.startswith("HOROVOD_")}
    others = slim({name: value for name, value in environment.items() if name not in ours})
    return run_warm(Kind(SCRIPT, size, tuple(others.items())), arguments, JOB_SECONDS, ours)


bodies: dict[tuple[str, str], Callable[[], None]] = {}


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
        def test(np: int, env: Environment, request: pytest.FixtureRequest) -> None:
            jobs.report((np, env), (*where, env), request)

        name_as(body, test)
        test.on_ranks = where  # type: ignore[attr-defined]
        return test

    return decorate


def select(items: list[pytest.Item]) -> None:
    """Remembers which tests are wanted, so that one job can run them all."""
    for item in items:
        where = getattr(getattr(item, "function", None), "on_ranks", None)
        if where is not None:
            params = item.callspec.params  # type: ignore[attr-defined]
            jobs.select((params["np"], params["env"]), (*where, params["env"]))


def run_bodies(kind: tuple[int, Environment], wanted: Sequence[Key]) -> dict[Key, Outcome]:
    """Runs tests in the same processes until these end."""
    size, environment = kind
    arguments = [f"{module}:{name}" for module, name, _ in wanted]
    job = fork(size, ["all", *arguments], dict(environment))
    return outcomes_of(job, wanted)


jobs = SharedJobs(run_bodies, skips=True)
