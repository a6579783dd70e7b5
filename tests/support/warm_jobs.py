"""Jobs whose ranks import a framework once. Each case runs in new processes, one per rank, forked
from ranks that have no other thread and have not called `init`: the import is most of the CPU time
of a short test."""

from __future__ import annotations

import atexit
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import core_seconds
import rank_jobs
from rank_jobs import Job

PAUSE_SECONDS = 0.02
END_SECONDS = 60  #: for ranks that have nothing to do but to end
#: Ranks of all jobs that exist at a time. Each keeps about 200 MB.
MOST_RANKS = 10


@dataclass(frozen=True)
class Kind:
    """`environment`: variables that the framework reads when it is imported."""

    script: Path  #: calls `serve`
    size: int
    environment: tuple[tuple[str, str], ...] = ()


class WarmJob:
    """A job of ranks that wait for cases. Owned by the process of the tests, and used by one
    thread. The ranks end when this process ends or closes its end of their FIFOs."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.folder = tempfile.TemporaryDirectory()
        self.count = 0
        self.fifos = [self._fifo(rank) for rank in range(kind.size)]
        command = [str(rank_jobs.launcher()), "-np", str(kind.size), sys.executable]
        self.output = (Path(self.folder.name) / "output").open("w+")
        self.process = subprocess.Popen(
            [*command, str(kind.script), self.folder.name, "warm"],
            stdout=self.output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={"OMP_NUM_THREADS": "1", **os.environ, **dict(kind.environment)},
        )

    def _fifo(self, rank: int) -> int:
        path = fifo_of(Path(self.folder.name), rank)
        os.mkfifo(path)
        return os.open(path, os.O_RDWR)  # for writing alone it would wait for the rank

    def run(self, arguments: Sequence[str], seconds: float, environment: Mapping[str, str]) -> Job:
        """Runs a case on all ranks until its processes have ended. `environment`: added to that of
        the job. `returncode`: as the launcher's, that of the first process that failed."""
        self.count += 1
        folder = Path(self.folder.name) / f"{self.count}"
        folder.mkdir()
        case = {"folder": str(folder), "arguments": list(arguments), "environment": environment}
        for fifo in self.fifos:
            os.write(fifo, json.dumps(case).encode() + b"\n")
        ends = [folder / f"end.{rank}" for rank in range(self.kind.size)]
        deadline = time.monotonic() + seconds
        while not all(end.exists() for end in ends):
            if time.monotonic() > deadline or self.process.poll() is not None:
                return self._broken(folder, seconds)
            time.sleep(PAUSE_SECONDS)
        found = [json.loads(end.read_text()) for end in ends]
        core_seconds.add_elsewhere(sum(end["core_seconds"] for end in found))
        bad = sorted((end["at"], end["code"]) for end in found if end["code"] != 0)
        return Job(bad[0][1] if bad else 0, self._said(folder), self._told(folder))

    def _told(self, folder: Path) -> list[list[Any]]:
        return rank_jobs.told(folder, self.kind.size)

    def _said(self, folder: Path) -> str:
        """The output of all ranks."""
        paths = [folder / f"output.{rank}" for rank in range(self.kind.size)]
        return "".join(path.read_text(errors="replace") for path in paths if path.exists())

    def _broken(self, folder: Path, seconds: float) -> Job:
        """The next case gets a new job."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self._leave()
        self.process.wait()
        output = f"{self._said(folder)}\n{self._whole_output()}\nit ended, or after {seconds} s"
        return Job(self.process.returncode or 1, output, self._told(folder))

    def end(self) -> None:
        """Raises AssertionError if its ranks do not end with it."""
        self._leave()
        try:
            self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            raise AssertionError(
                f"ranks of {self.kind} were there {END_SECONDS} s after their end was asked for:\n"
                f"{self._whole_output()}"
            ) from None

    def _leave(self) -> None:
        _jobs.pop(self.kind, None)
        for fifo in self.fifos:
            os.close(fifo)
        self.fifos = []

    def _whole_output(self) -> str:
        self.output.seek(0)
        return self.output.read()


_jobs: dict[Kind, WarmJob] = {}  #: the least recently used one first


def run_warm(
    kind: Kind, arguments: Sequence[str], seconds: float, environment: Mapping[str, str]
) -> Job:
    """Runs a case in the job of this kind, which it starts if there is none. Ends others if there
    would be too many ranks."""
    job = _jobs.pop(kind, None)
    if job is None:
        while _jobs and sum(one.size for one in _jobs) + kind.size > MOST_RANKS:
            next(iter(_jobs.values())).end()
        job = WarmJob(kind)
    _jobs[kind] = job
    return job.run(arguments, seconds, environment)


@atexit.register
def end_all() -> None:
    for job in list(_jobs.values()):
        job.end()


def fifo_of(folder: Path, rank: int | str) -> Path:
    return folder / f"fifo.{rank}"


def serve(folder: Path) -> tuple[str, list[str]]:
    """Called on a rank that has imported what the cases share. Returns in each forked process, with
    the folder and the arguments of its case. The rank itself ends with the job."""
    gc.freeze()  # a search for garbage would copy the pages that all cases share
    rank = os.environ["HOROVOD_RANK"]
    # Without O_NONBLOCK it would wait forever if the process of the tests has ended already.
    fifo = os.open(fifo_of(folder, rank), os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(fifo, True)
    with os.fdopen(fifo) as lines:
        for line in lines:
            case = json.loads(line)
            child = os.fork()
            if child == 0:
                lines.close()
                begin(case, rank)
                return case["folder"], case["arguments"]
            tell_end(child, Path(case["folder"]) / f"end.{rank}")
    os._exit(0)


def begin(case: Mapping[str, Any], rank: str) -> None:
    os.environ.update(case["environment"])
    output = os.open(f"{case['folder']}/output.{rank}", os.O_WRONLY | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)


def tell_end(child: int, path: Path) -> None:
    """Waits for it. Publishes its end at once: a reader that sees the file sees all of it."""
    _, status, usage = os.wait4(child, 0)
    code = os.waitstatus_to_exitcode(status)
    end = {
        "at": time.monotonic(),
        "code": code if code >= 0 else 128 - code,
        "core_seconds": usage.ru_utime + usage.ru_stime,
    }
    unseen = path.with_name(f"{path.name}.unseen")
    unseen.write_text(json.dumps(end))
    unseen.rename(path)
