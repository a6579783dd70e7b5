"""What the tests of the launcher share: the program, run under a watchdog."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

WATCHDOG_SECONDS = 30


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

    def start(
        self, *arguments: str, env: dict[str, str] | None = None, stdin: int = subprocess.DEVNULL
    ) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [horovodrun(), *arguments],
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


def wait_until(true: Callable[[], bool], what: str) -> None:
    """Polls, since what is waited for happens in processes that are not ours."""
    deadline = time.monotonic() + WATCHDOG_SECONDS
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

    def complete() -> bool:
        found = list(folder.glob("*.pid"))
        return len(found) == count and all(path.read_text().endswith("\n") for path in found)

    wait_until(complete, f"{count} processes to start")
    return [int(path.read_text()) for path in folder.glob("*.pid")]


def wait_gone(pids: list[int]) -> None:
    wait_until(lambda: not any(map(is_alive, pids)), f"the end of processes {pids}")


def children_of(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]
