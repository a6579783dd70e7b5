"""Jobs whose ranks run tests: how they are started, how they ended, what their ranks told."""

from __future__ import annotations

import faulthandler
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

Key = TypeVar("Key")
#: For what ranks tell when another one has failed: horovodrun alone leaves them 1 s, which may be
#: too little on a busy machine.
GRACE_SECONDS = "20"


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


def start_job(
    size: int,
    script: Path,
    arguments: list[str],
    folder: Path,
    environment: Mapping[str, str],
    seconds: float,
) -> Job:
    """Runs `script FOLDER ARGUMENTS...` on all ranks to the end; after so many seconds it is
    killed."""
    command = [str(launcher()), "-np", str(size)]
    environment = {"HOROVOD_GRACE_SECONDS": GRACE_SECONDS, **environment}
    command += [sys.executable, str(script), str(folder), *arguments]
    return run_command(command, size, folder, environment, seconds)


def run_command(
    command: list[str], size: int, folder: Path, environment: Mapping[str, str], seconds: float
) -> Job:
    """The same by any launcher: `command` starts `size` ranks, who tell below `folder`."""
    job = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        env={"OMP_NUM_THREADS": "1", **os.environ, **environment},  # ranks share few cores
    )
    try:
        output, _ = job.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        output, _ = job.communicate()
        output += f"\nthe job was killed after {seconds} s"
    return Job(job.returncode, output, told(folder, size))


def told(folder: Path, size: int) -> list[list[Any]]:
    """What each rank has told below `folder`, in order."""
    return [_read(folder / f"rank.{rank}") for rank in range(size)]


def _read(path: Path) -> list[Any]:
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


@dataclass(frozen=True)
class Outcome:
    """Of a test in a job of many. `problem`: None when it passed on all ranks."""

    problem: str | None
    core_seconds: float = 0.0  #: of all ranks


def watch(seconds: float) -> None:
    """Called on a rank: if it is there after so many seconds, it ends with the stacks of all
    threads. Each call replaces the one before."""
    faulthandler.dump_traceback_later(seconds, exit=True)


def tell_outcome(body: Callable[[], None], watchdog_seconds: float) -> None:
    """Called on a rank of a job of many tests: runs one. From here on it is watched, since what
    comes behind the last test can hang too."""
    import pytest  # which jobs of one test do without

    watch(watchdog_seconds)
    begin = time.process_time()
    try:
        body()
        problem = None
    except pytest.skip.Exception:
        problem = "skipped"
    except BaseException:
        problem = traceback.format_exc()
    tell([problem, time.process_time() - begin])
    watch(watchdog_seconds)


def outcomes_of(job: Job, tests: Sequence[Key]) -> dict[Key, Outcome]:
    """Of `tests`, which its ranks ran in this order until the job ended. The one at which it ended
    has failed, the last one where it ended badly after it; those after it have no outcome."""
    outcomes: dict[Key, Outcome] = {}
    for index, test in enumerate(tests):
        is_told = all(len(told) > index for told in job.told)
        if not is_told or (index == len(tests) - 1 and job.returncode != 0):
            ended = f"the job ended here with exit code {job.returncode}"
            outcomes[test] = Outcome(f"{ended}:\n{job.output[-8000:]}")
            break
        found = [told[index][0] for told in job.told]
        skipped = all(problem == "skipped" for problem in found)
        problems = [f"rank {rank}:\n{what}" for rank, what in enumerate(found) if what is not None]
        problem = "skipped" if skipped else "\n".join(problems) or None
        outcomes[test] = Outcome(problem, sum(told[index][1] for told in job.told))
    return outcomes


def say_begun(folder: str) -> None:
    """Called by a process of a job: it is there."""
    (Path(folder) / f"begun.{os.getpid()}").touch()


def has_begun(folder: Path) -> bool:
    """Whether the launcher has started any process."""
    return any(folder.glob("begun.*"))


_told_to: list[Path] = []


def tell(value: Any) -> None:
    """Called on a rank: hands something that JSON can carry to the test."""
    with _told_to[0].open("a") as file:
        file.write(json.dumps(value) + "\n")


def begin_telling(folder: str, rank: int | None = None) -> None:
    """`rank`: as it is known; None: as horovodrun says."""
    number = os.environ.get("HOROVOD_RANK", "0") if rank is None else str(rank)
    _told_to.append(Path(folder) / f"rank.{number}")
