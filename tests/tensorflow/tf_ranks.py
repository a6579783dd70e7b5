"""Tests that run on every rank of a real job; starting TensorFlow takes seconds, so few jobs.

`@on_ranks(1, 2)` makes a test of a function: it runs on all ranks of a job of 1, then of 2
processes, and passes when it passes on all of them. All tests of one size and one `env` share a
job. `run_job` starts a job for a single function: how do jobs end?
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

#: A test that takes longer hangs. Tracing and compiling on busy cores takes a while.
WATCHDOG_SECONDS = 120
JOB_SECONDS = 900
HERE = Path(__file__).parent

Environment = tuple[tuple[str, str], ...]
Key = tuple[str, str, Environment]  # module, function, environment
EVERYWHERE = (1, 2, 4)


def launcher() -> str | None:
    """horovodrun: $HOROVODRUN, or the one beside this Python, or the one on the path."""
    beside = Path(sys.executable).parent / "horovodrun"
    return (
        os.environ.get("HOROVODRUN")
        or (str(beside) if beside.exists() else None)
        or shutil.which("horovodrun")
    )


@dataclass
class Job:
    """How a job ended. `told`: what each rank gave to `tell`, in order."""

    returncode: int
    output: str
    told: list[list[Any]] = field(default_factory=list)


def start_job(size: int, arguments: list[str], folder: Path, environment: Environment) -> Job:
    command = [str(launcher()), "-np", str(size), sys.executable, str(HERE / "tf_rank_main.py")]
    job = subprocess.Popen(
        [*command, str(folder), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        env={"OMP_NUM_THREADS": "1", **os.environ, **dict(environment)},  # ranks share few cores
    )
    try:
        output, _ = job.communicate(timeout=JOB_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        output, _ = job.communicate()
        output += f"\nthe job was killed after {JOB_SECONDS} s"
    return Job(job.returncode, output, [_read(folder / f"rank.{rank}") for rank in range(size)])


def _read(path: Path) -> list[Any]:
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def run_job(size: int, body: Callable[[], None], **environment: str) -> Job:
    """Runs one function of a test module on `size` ranks. It is up to it to call `init`."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["only", body.__module__, body.__name__]
        return start_job(size, arguments, Path(folder), tuple(environment.items()))


_told_to: list[Path] = []


def tell(value: Any) -> None:
    """Called on a rank: hands something that JSON can carry to the test."""
    with _told_to[0].open("a") as file:
        file.write(json.dumps(value) + "\n")


def begin_telling(folder: str) -> None:
    rank = os.environ.get("HOROVOD_RANK", "0")
    _told_to.append(Path(folder) / f"rank.{rank}")


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
        job = start_job(size, ["all", *arguments], Path(folder), wanted[0][2])
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
