"""Jobs whose ranks run tests: how they are started, how they ended, what their ranks told."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


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
    return Job(job.returncode, output, [_read(folder / f"rank.{rank}") for rank in range(size)])


def _read(path: Path) -> list[Any]:
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


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
