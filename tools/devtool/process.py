"""Runs a command with its output in a log file, a deadline, and one line on the screen."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from devtool.paths import LOGS, ROOT

LINES_SHOWN_ON_FAILURE = 40


class Failed(Exception):
    """A step did not work; the text has been made for the reader of the screen."""


@dataclass(frozen=True)
class Ended:
    code: int
    timed_out: bool
    log: Path


def say(text: str) -> None:
    print(text, flush=True)


def tail(log: Path, lines: int = LINES_SHOWN_ON_FAILURE) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def first_errors(log: Path) -> str:
    """What a compiler complained of first, if it did; the rest mostly follows from that."""
    lines = log.read_text(errors="replace").splitlines()
    found = [line for line in lines if "error:" in line or line.startswith("FAILED:")]
    return "\n".join(found[:LINES_SHOWN_ON_FAILURE]) or tail(log)


_running: set[subprocess.Popen[bytes]] = set()  #: what other threads wait for, too


def run_logged(
    command: Sequence[str],
    log_name: str,
    *,
    deadline_s: float,
    env: Mapping[str, str] | None = None,
) -> Ended:
    """Runs `command` from the root of the checkout; ends it and its children at the deadline."""
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"{log_name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        _running.add(process)
        try:
            return Ended(process.wait(deadline_s), False, log)
        except subprocess.TimeoutExpired:
            return Ended(124, True, log)
        finally:
            _running.discard(process)
            end_session(process)


def end_what_runs() -> None:
    """Ends what run_logged() waits for in other threads, where this one was interrupted."""
    for process in list(_running):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)


def end_session(process: subprocess.Popen[bytes]) -> None:
    """Leaves nothing of `process` behind: SIGTERM while it runs, then SIGKILL to the rest."""
    with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(5)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def show(command: Sequence[str], env: Mapping[str, str] | None = None) -> int:
    """Runs `command` on this terminal; returns its exit code."""
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **(env or {})}).returncode


def step(title: str, work: Callable[[], str]) -> None:
    """One line: what is done, what `work` says of it, and the seconds it took."""
    begin = time.monotonic()
    print(f"  {title:<18}", end="", flush=True)
    try:
        result = work()
    except BaseException:
        print("failed" if sys.exc_info()[0] is Failed else "interrupted", flush=True)
        raise
    print(f"{result:<52}{time.monotonic() - begin:7.1f} s", flush=True)


def done_step(title: str, work: Callable[[], str]) -> str:
    """The same line when all is done, for work beside which others print."""
    begin = time.monotonic()
    result = work()
    return f"  {title:<18}{result:<52}{time.monotonic() - begin:7.1f} s"


def must(
    command: Sequence[str],
    log_name: str,
    *,
    deadline_s: float = 1800,
    env: Mapping[str, str] | None = None,
) -> None:
    """As run_logged; raises Failed with the end of the log when the command does not succeed."""
    ended = run_logged(command, log_name, deadline_s=deadline_s, env=env)
    if ended.code == 0:
        return
    how = f"ran over {deadline_s:.0f} s" if ended.timed_out else f"ended with {ended.code}"
    raise Failed(f"`{' '.join(command)}` {how}:\n{first_errors(ended.log)}\nAll of it: {ended.log}")
