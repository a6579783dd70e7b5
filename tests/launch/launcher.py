"""What the tests of the launcher share: the program, run under a watchdog."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

WATCHDOG_SECONDS = 60
#: Of tests that look at how much memory the launcher takes.
without_sanitizer = pytest.mark.skipif(
    "ASAN_OPTIONS" in os.environ, reason="a sanitizer keeps what is freed for a while"
)


def horovodrun() -> str:
    """The program under test: $HOROVODRUN, else the one of this interpreter, else that in PATH."""
    beside = Path(sys.executable).parent / "horovodrun"
    found = os.environ.get("HOROVODRUN") or (str(beside) if beside.exists() else None)
    found = found or shutil.which("horovodrun")
    if found is None:
        pytest.fail("horovodrun was not found: set $HOROVODRUN")
    return found


@dataclass
class Ended:
    code: int
    out: str
    err: str

    @property
    def out_lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def said(self) -> list[str]:
        """What the launcher itself said."""
        mark = "horovodrun: "
        return [line.removeprefix(mark) for line in self.err.splitlines() if line.startswith(mark)]


def ended(process: subprocess.Popen[bytes], data: bytes | None = None) -> Ended:
    try:
        out, err = process.communicate(data, timeout=WATCHDOG_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        pytest.fail(f"horovodrun hung; it had written\n{out!r}\n{err!r}")
    return Ended(process.returncode, (out or b"").decode(), (err or b"").decode())


@dataclass
class Jobs:
    """Starts jobs and ends what a failed test leaves."""

    folder: Path
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)
    through: list[str] = field(default_factory=list)  #: a command that runs horovodrun

    def start(
        self, *arguments: str, env: dict[str, str] | None = None, stdin: int = subprocess.DEVNULL
    ) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [*self.through, horovodrun(), *arguments],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.folder,
            env={**os.environ, **(env or {})},
        )
        self.started.append(process)
        return process

    def run(
        self, *arguments: str, env: dict[str, str] | None = None, data: bytes | None = None
    ) -> Ended:
        stdin = subprocess.DEVNULL if data is None else subprocess.PIPE
        return ended(self.start(*arguments, env=env, stdin=stdin), data)

    def script(self, text: str) -> str:
        """A shell script in the test's folder; returns its name."""
        path = self.folder / "rank.sh"
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(0o755)
        return str(path)

    def end(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.communicate()


@contextmanager
def inherited(number: signal.Signals, handler: signal.Handlers) -> Iterator[None]:
    """What a launcher that is started meanwhile finds: these tests may themselves run by nohup."""
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before or signal.SIG_DFL)


def wait_until(true: Callable[[], bool], what: str, seconds: float = WATCHDOG_SECONDS) -> None:
    """Polls, since what is waited for happens in processes that are not ours."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            pytest.fail(f"waited in vain for {what}")
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # also between opening and reading it
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def proc_number(pid: int, file: str, name: str) -> int:
    """The number behind `name:` in a file of /proc/PID; KiB where it is of memory."""
    lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(f"{name}:")]
    return int(line.split()[1])


def pids_in(folder: Path, count: int) -> list[int]:
    """Waits for `count` files named `<anything>.pid`, each with the number of a process."""

    texts: list[str] = []  # a process that is started twice may begin its file anew

    def complete() -> bool:
        texts[:] = [path.read_text() for path in folder.glob("*.pid")]
        return len(texts) == count and all(text.endswith("\n") for text in texts)

    wait_until(complete, f"{count} processes to start")
    return [int(text) for text in texts]


def wait_gone(pids: list[int]) -> None:
    wait_until(lambda: not any(map(is_alive, pids)), f"the end of processes {pids}")


def children_of(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


# A rank, a child of it in a session of its own, and a daemon made by forking twice.
FAMILY = """
import os, sys, time
rank = os.environ["HOROVOD_RANK"]
def live(name):
    signal_proof = len(sys.argv) > 1
    if signal_proof:
        import signal
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
    with open(f"{name}.part", "w") as file:
        file.write(f"{os.getpid()}\\n")
    os.rename(f"{name}.part", f"{name}.pid")
    time.sleep(1000)
if os.fork() == 0:
    os.setsid()
    live(f"session{rank}")
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        live(f"daemon{rank}")
    os._exit(0)
os.wait()
live(f"rank{rank}")
"""


def start_family(
    jobs: Jobs, *flags: str, argument: str = ""
) -> tuple[subprocess.Popen[bytes], list[int]]:
    (jobs.folder / "family.py").write_text(FAMILY)
    arguments = [argument] if argument else []
    process = jobs.start("-np", "2", *flags, "python3", "family.py", *arguments)
    return process, pids_in(jobs.folder, 6)
